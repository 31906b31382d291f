//! The C ABI: the only `extern "C"` functions of the library.
