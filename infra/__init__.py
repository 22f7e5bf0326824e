"""Every vendor, one file or folder each, behind a port of `app.ports`; `wiring` joins them."""
