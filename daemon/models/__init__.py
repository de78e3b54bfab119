"""Transport to models at an endpoint, embedders there, the choice among all models, their budget and prices."""
