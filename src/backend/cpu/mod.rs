//! The CPU: threads of the engine, bf16 weights where they lie, f32 activations.
