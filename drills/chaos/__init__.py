"""The random fault run: the whole product below its API on the shipped fakes, and everything that can befall it.

Read in this order: `plan` (what a seed asks for); `scheduler`, `ports`, `process`, `world`, `cluster` (the deployment,
of which one step runs at a time); `chances`, `faults`, `trainer` (what befalls it, and what its callers do);
`chronicle` (what truly happened), `oracle` (what may follow from that), `judge` (whether it did); `episode` (one seed
from start to end).
"""
