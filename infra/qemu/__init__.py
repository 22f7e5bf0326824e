"""Virtual machines by QEMU: a template is booted and frozen once, forks are restored from it, each under its keeper."""
