"""The runs of a store, each in a few numbers: what lists, fleet reports and exporters share."""
