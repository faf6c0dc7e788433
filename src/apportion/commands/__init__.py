"""The verbs that go from files to a trained model and on: check, train, predict, export."""
