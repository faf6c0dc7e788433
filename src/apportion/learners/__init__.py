"""Any scikit-learn classifier, learning from the proportions of bags."""
