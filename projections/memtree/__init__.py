"""MemTree: time-ordered summary trees, one per scope (paper B)."""
