"""The flight recorder: record layout, writer, reader, and the run store."""
