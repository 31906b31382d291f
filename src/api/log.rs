//! Messages of the library, such as that a model was opened. There are none before [`set_max_level`] asks for them, and nothing is printed.

pub use base::log::{Level, dropped, pop, set_max_level};
