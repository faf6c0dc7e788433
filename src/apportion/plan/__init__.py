"""What follows from the bags alone, each choice with its reason.

The estimator, the command line and the readers of data all ask here. An option that is given
always wins. Print a plan to read it. What is trained in another way than a single net has a plan of
its own, beside what trains it, made of the same choices:

- `Plan`, of a single net: here
- `TablePlan`, of the nets of an average, or of a linear model: `apportion.auto.members`
- `PretrainPlan`, of pre-training alone: `apportion.training.pretrained`
- `LearnerPlan` and `FrozenPlan`, of a learner of scikit-learn's kind, and of a layer on a net of
  the caller's: `apportion.estimator.learning`
"""
