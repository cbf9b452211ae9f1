"""`holdfast serve`: the runs of a store, live in a browser. Reads files; changes nothing."""
