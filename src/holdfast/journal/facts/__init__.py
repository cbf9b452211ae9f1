"""From the journals of a run to its facts: followed file by file, and put onto one clock."""
