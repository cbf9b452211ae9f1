"""Drop-in faces of other libraries: their names and shapes, Holdfast's records and answers."""
