"""What looks after a store: doctor, verify, backup, restore, replay, and the demo."""
