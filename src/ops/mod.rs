//! The verbs that models are written in: a contract, a check of shapes, one call of the backend.
