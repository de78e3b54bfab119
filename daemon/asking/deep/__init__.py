"""Mode `deep`: a question planned, browsed and checked with the model, each call behind a cap."""
