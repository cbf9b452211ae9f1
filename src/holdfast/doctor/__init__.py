"""What on this host will hurt a run, before it does: facts, gathered once, and checks over them."""
