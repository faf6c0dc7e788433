"""For researchers: datasets, bag protocols, manifests, reproduction of papers."""
