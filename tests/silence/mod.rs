//! What the library's panic hook does for a host: panics that become errors are not printed. Their backtraces would take more
//! memory than what is measured.

use base::contain;
use std::sync::Once;

/// Silences the panics that the library contains, for the rest of the process.
pub fn contained_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !contain::is_active() {
                before(panic);
            }
        }));
    });
}
