"""Stored bundles as EBS snapshots of the account; those of this host as volumes that are mounted where a bundle is."""

from __future__ import annotations

from infra.ebs.bundles import EbsBundles
from infra.ebs.disks import Device, Disks, Ext4Disks

__all__ = ["Device", "Disks", "EbsBundles", "Ext4Disks"]
