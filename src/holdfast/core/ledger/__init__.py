"""Where every chip-nanosecond went: a plain ledger and a vectorised, incremental one."""
