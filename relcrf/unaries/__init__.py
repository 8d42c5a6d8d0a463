"""Learned features: estimators of scikit-learn, trained on labels, whose out-of-fold scores are features of templates."""
