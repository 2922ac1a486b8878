"""Pictures and the HTML report of a run folder, or of several side by side."""
