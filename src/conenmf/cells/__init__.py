"""Gene programs of cells: from raw counts on disk to programs, usages and files in one call."""
