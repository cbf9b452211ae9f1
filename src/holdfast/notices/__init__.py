"""Where warnings come from: one file a source, behind `holdfast.notices.protocol`."""
