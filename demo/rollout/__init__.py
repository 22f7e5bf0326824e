"""What runs inside a fork: the rollout (`python -m rollout --policy URL`) and the warm test process that it uses."""
