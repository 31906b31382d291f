//! The caller's memory: arrays, strings, buffers, and structs that may be older or newer than ours.
#![allow(unsafe_code)]

use super::refusal::Refusal;
use base::error::Error;
use std::ffi::{CStr, c_char};
use std::ptr::NonNull;

/// No version of a struct will be larger; a greater struct_size is an uninitialized one.
const STRUCT_BYTES_MAX: usize = 4096;

/// A struct of the header that begins with `struct_size`.
///
/// # Safety
///
/// The type is `repr(C)`, its first field is `struct_size: usize`, and any bytes are a value of it.
pub(super) unsafe trait Versioned: Copy {
    /// Its C name.
    const NAME: &'static str;
}

/// Reads a struct of the caller. What an older caller does not have stays as in `defaults`.
///
/// # Safety
///
/// `from` points to as many bytes as the struct_size that stands there says.
pub(super) unsafe fn read<T: Versioned>(from: NonNull<T>, defaults: T) -> Result<T, Refusal> {
    // SAFETY: the caller promises at least a struct_size; `size_at` looks at no more.
    let size = unsafe { size_at(from)? };
    let known = size_of::<T>();
    let bytes = from.cast::<u8>().as_ptr();
    for offset in known..size {
        // SAFETY: `offset` is below struct_size, and the caller promises `struct_size` bytes.
        if unsafe { bytes.add(offset).read() } != 0 {
            return Err(Refusal::NewerFields { name: T::NAME, known, size });
        }
    }
    let mut value = defaults;
    // SAFETY: both sides hold `min(size, known)` bytes: the caller's by its promise, ours by its type, of which any
    // bytes are a value. No field is torn: `size_at` made sure of whole words.
    unsafe { std::ptr::copy_nonoverlapping(bytes, (&raw mut value).cast::<u8>(), size.min(known)) };
    Ok(value)
}

/// Reads an array of structs, which have one struct_size, and gives each to `take` with its index.
///
/// # Errors
///
/// Those of [`read`] and of `take`, with the index of the struct.
///
/// # Safety
///
/// `first` is NULL or points to `count` structs, each of as many bytes as the struct_size of the first says.
pub(super) unsafe fn read_each<T: Versioned>(
    array: &'static str,
    first: *const T,
    count: usize,
    defaults: T,
    mut take: impl FnMut(usize, &T) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    if count == 0 {
        return Ok(());
    }
    let first = NonNull::new(first.cast_mut()).ok_or(Refusal::NullWithLength(array, count))?;
    let mut at = first;
    for index in 0..count {
        let refused = |reason| Refusal::Element { array, index, reason: Box::new(reason) };
        // SAFETY: promised by the caller; that each has the struct_size of the first is checked below.
        let value = unsafe { read(at, defaults).map_err(refused)? };
        // SAFETY: both structs were read, so that they begin with a struct_size.
        let (size, stride) = unsafe { (at.cast::<usize>().read(), first.cast::<usize>().read()) };
        if size != stride {
            let wanted = "that of the first of the array";
            return Err(refused(Error::Option { field: "struct_size", value: size.to_string(), wanted }.into()));
        }
        take(index, &value).map_err(refused)?;
        // SAFETY: one past the struct that was read: another one of the array, or its end.
        at = unsafe { at.byte_add(stride) };
    }
    Ok(())
}

/// Writes `value`, whose `struct_size` becomes `size`, into memory of `size` bytes; what lies beyond our struct is zeroed.
///
/// # Safety
///
/// `to` points to `size` bytes that may be written.
pub(super) unsafe fn init<T: Versioned>(to: *mut T, size: usize, value: T) {
    if to.is_null() || size < size_of::<usize>() {
        return;
    }
    let mut value = value;
    // SAFETY: `Versioned` promises that the first field is struct_size.
    unsafe { (&raw mut value).cast::<usize>().write(size) };
    // A size that no version has is a mistake of the caller, which the next call reports; our own size is safe to write.
    let tail = if size > STRUCT_BYTES_MAX { 0 } else { size.saturating_sub(size_of::<T>()) };
    // SAFETY: at most `size` bytes are written, which the caller promises.
    unsafe { copy_with_tail(to.cast(), &value, size, tail) };
}

/// [`init`] for a struct that a call fills: all else is 0.
///
/// # Safety
///
/// `to` points to `size` bytes that may be written.
pub(super) unsafe fn init_zeroed<T: Versioned>(to: *mut T, size: usize) {
    // SAFETY: `Versioned` promises that any bytes are a value; the rest is promised by the caller.
    unsafe { init(to, size, std::mem::zeroed()) };
}

/// A struct of the caller that an answer is written to.
pub(super) struct OutStruct<T: Versioned> {
    at: NonNull<T>,
    size: usize,
}

impl<T: Versioned> OutStruct<T> {
    /// Checks the struct_size that the caller has set.
    ///
    /// # Safety
    ///
    /// `at` points to as many bytes as the struct_size that stands there says, until [`OutStruct::write`].
    pub(super) unsafe fn new(at: NonNull<T>) -> Result<OutStruct<T>, Refusal> {
        // SAFETY: the caller promises at least a struct_size.
        Ok(OutStruct { at, size: unsafe { size_at(at)? } })
    }

    /// Writes as much of `value` as the caller has room for, zeroes what we do not know, and keeps struct_size.
    pub(super) fn write(self, value: T) {
        let mut value = value;
        let tail = self.size.saturating_sub(size_of::<T>());
        // SAFETY: the first field is struct_size (`Versioned`), and the place has `size` bytes (promised to `new`).
        unsafe {
            (&raw mut value).cast::<usize>().write(self.size);
            copy_with_tail(self.at.cast().as_ptr(), &value, self.size, tail);
        }
    }
}

/// Writes the first `size` bytes of `value`, or all of it and then `tail` zeros.
///
/// # Safety
///
/// `to` has room for `min(size, size_of::<T>()) + tail` bytes.
unsafe fn copy_with_tail<T: Versioned>(to: *mut u8, value: &T, size: usize, tail: usize) {
    let known = size_of::<T>().min(size);
    // SAFETY: promised by the caller; `value` has at least `known` bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast::<u8>(), to, known);
        std::ptr::write_bytes(to.add(known), 0, tail);
    }
}

/// The struct_size of a caller's struct: whole words, and no more than any version can have.
///
/// # Safety
///
/// `at` points to a struct_size.
unsafe fn size_at<T: Versioned>(at: NonNull<T>) -> Result<usize, Refusal> {
    if !at.is_aligned() {
        return Err(Refusal::Misaligned(T::NAME, align_of::<T>()));
    }
    // SAFETY: `Versioned` promises that a struct_size stands first, the caller that it may be read; it is aligned.
    let size = unsafe { at.cast::<usize>().read() };
    let whole_words = size.is_multiple_of(size_of::<u64>());
    if size < size_of::<usize>() || size > STRUCT_BYTES_MAX || !whole_words {
        return Err(Refusal::StructSize { name: T::NAME, size });
    }
    Ok(size)
}

/// An array of the caller. A NULL of length 0 is an empty one.
///
/// # Safety
///
/// `data` is NULL or points to `len` values that stay as they are while the slice lives.
pub(super) unsafe fn slice<'a, T>(what: &'static str, data: *const T, len: usize) -> Result<&'a [T], Refusal> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(Refusal::NullWithLength(what, len));
    }
    if !data.is_aligned() {
        return Err(Refusal::Misaligned(what, align_of::<T>()));
    }
    if len > isize::MAX as usize / size_of::<T>() {
        return Err(Refusal::TooLong(what, len));
    }
    // SAFETY: not NULL, aligned and not too long by the checks above; the values are the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(data, len) })
}

/// Text of the caller, with its length.
///
/// # Safety
///
/// As [`slice`].
pub(super) unsafe fn text<'a>(what: &'static str, data: *const c_char, len: usize) -> Result<&'a str, Refusal> {
    // SAFETY: the same promise.
    utf8(what, unsafe { slice(what, data.cast::<u8>(), len)? })
}

/// Text of the caller that ends with a NUL.
///
/// # Safety
///
/// `data` is NULL or points to a NUL-terminated string that stays as it is while the text lives.
pub(super) unsafe fn c_text<'a>(what: &'static str, data: *const c_char) -> Result<&'a str, Refusal> {
    if data.is_null() {
        return Err(Refusal::Null(what));
    }
    // SAFETY: not NULL by the check above; the NUL is the caller's promise.
    utf8(what, unsafe { CStr::from_ptr(data) }.to_bytes())
}

fn utf8<'a>(what: &'static str, bytes: &'a [u8]) -> Result<&'a str, Refusal> {
    std::str::from_utf8(bytes).map_err(|error| Error::NotUtf8 { what, valid_bytes: error.valid_up_to() }.into())
}

/// A buffer of the caller, and the place where the size it should have is stored.
pub(super) struct Buffer<T: Copy> {
    data: *mut T,
    capacity: usize,
    needed: NonNull<usize>,
}

impl<T: Copy> Buffer<T> {
    /// Checks the pointers.
    ///
    /// # Safety
    ///
    /// `data` is NULL or has room for `capacity` values, and `needed` is NULL or may be written, until [`Buffer::fill`].
    pub(super) unsafe fn new(
        what: &'static str,
        data: *mut T,
        capacity: usize,
        needed: *mut usize,
    ) -> Result<Buffer<T>, Refusal> {
        let needed = NonNull::new(needed).ok_or(Refusal::Null("needed"))?;
        if !needed.is_aligned() {
            return Err(Refusal::Misaligned("needed", align_of::<usize>()));
        }
        if data.is_null() && capacity > 0 {
            return Err(Refusal::NullWithLength(what, capacity));
        }
        if !data.is_aligned() {
            return Err(Refusal::Misaligned(what, align_of::<T>()));
        }
        Ok(Buffer { data, capacity, needed })
    }

    /// Stores the size of an answer, and gives the room for it when there is enough.
    pub(super) fn room<'a>(self, needed: usize) -> Result<&'a mut [T], Refusal>
    where
        T: Default,
    {
        // SAFETY: not NULL and aligned by `new`; writable by the promise made to it.
        unsafe { self.needed.write(needed) };
        if needed > self.capacity {
            return Err(Refusal::BufferTooSmall { needed, capacity: self.capacity });
        }
        if needed == 0 {
            return Ok(&mut []);
        }
        for i in 0..needed {
            // SAFETY: `data` has room for `capacity` values (promised to `new`), which is enough by the check above.
            unsafe { self.data.add(i).write(T::default()) };
        }
        // SAFETY: as above, and all of it was just written.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.data, needed) })
    }

    /// Stores the size of `values`, and the values themselves when they fit.
    pub(super) fn fill(self, values: &[T]) -> Result<(), Refusal> {
        // SAFETY: not NULL and aligned by `new`; writable by the promise made to it.
        unsafe { self.needed.write(values.len()) };
        if values.len() > self.capacity {
            return Err(Refusal::BufferTooSmall { needed: values.len(), capacity: self.capacity });
        }
        if !values.is_empty() {
            // SAFETY: `data` has room for `capacity` values (promised to `new`), which is enough by the check above; it
            // is not NULL, because `new` allows that for capacity 0 alone.
            unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), self.data, values.len()) };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::nvllm_status_code::*;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Sample {
        struct_size: usize,
        first: u32,
        second: u32,
        third: u64,
    }

    // SAFETY: repr(C), struct_size first, integers only.
    unsafe impl Versioned for Sample {
        const NAME: &'static str = "sample";
    }

    const DEFAULTS: Sample = Sample { struct_size: 24, first: 1, second: 2, third: 3 };

    /// A caller whose struct has `words` words: struct_size, then what follows.
    fn read_words(words: &[u64]) -> Result<Sample, Refusal> {
        // SAFETY: each case brings as many words as its struct_size says, or one that is refused unread.
        unsafe { read(NonNull::from(words).cast(), DEFAULTS) }
    }

    #[test]
    fn older_and_newer_callers_are_understood() {
        assert_eq!(
            read_words(&[24, 5 | 6 << 32, 7]).expect("equal"),
            Sample { struct_size: 24, first: 5, second: 6, third: 7 }
        );
        assert_eq!(
            read_words(&[16, 5 | 6 << 32]).expect("older"),
            Sample { struct_size: 16, first: 5, second: 6, third: 3 }
        );
        assert_eq!(read_words(&[8]).expect("oldest"), Sample { struct_size: 8, ..DEFAULTS });
        assert_eq!(
            read_words(&[40, 5 | 6 << 32, 7, 0, 0]).expect("newer"),
            Sample { struct_size: 40, first: 5, second: 6, third: 7 }
        );
    }

    #[test]
    fn a_field_that_only_a_newer_library_knows_is_refused() {
        let refusal = read_words(&[40, 5, 7, 0, 1 << 56]).expect_err("the last byte is set");
        assert!(matches!(refusal, Refusal::NewerFields { known: 24, size: 40, .. }), "{refusal}");
    }

    #[test]
    fn impossible_sizes_are_refused_unread() {
        for size in [0, 1, 7, 12, 4104, u64::MAX] {
            let refusal = read_words(&[size]).expect_err("an impossible size");
            assert_eq!(refusal.status(), NVLLM_ERR_INVALID_ARGUMENT);
            assert!(matches!(refusal, Refusal::StructSize { .. }), "{size}: {refusal}");
        }
    }

    #[test]
    fn init_writes_no_byte_beyond_the_size_given() {
        for size in 0..40_usize {
            let mut words = [u64::MAX; 5];
            // SAFETY: `size` is at most the 40 bytes of the array.
            unsafe { init(words.as_mut_ptr().cast::<Sample>(), size, DEFAULTS) };
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            assert!(bytes[size..].iter().all(|&byte| byte == 0xff), "size {size} wrote too far");
            if size >= 8 {
                assert_eq!(words[0], size as u64);
            }
            if size > 24 {
                assert!(bytes[24..size].iter().all(|&byte| byte == 0), "size {size} left a tail");
            }
        }
    }

    #[test]
    fn an_answer_stays_within_the_callers_struct() {
        for (words, wanted) in [
            ([16, 9, 9, 9], [16, 1 | 2 << 32, 9, 9]),
            ([24, 9, 9, 9], [24, 1 | 2 << 32, 3, 9]),
            ([32, 9, 9, 9], [32, 1 | 2 << 32, 3, 0]),
        ] {
            let mut words: [u64; 4] = words;
            // SAFETY: the array has at least as many bytes as its first word says.
            let place = unsafe { OutStruct::<Sample>::new(NonNull::from(&mut words).cast()) }.expect("a good size");
            place.write(DEFAULTS);
            assert_eq!(words, wanted);
        }
    }

    #[test]
    fn arrays_that_cannot_be_are_refused() {
        let values = [1_u32, 2, 3];
        let odd = values.as_ptr().wrapping_byte_add(1);
        // SAFETY: refused before anything is read, except for the empty ones.
        unsafe {
            assert!(matches!(slice::<u32>("tokens", std::ptr::null(), 1), Err(Refusal::NullWithLength("tokens", 1))));
            assert!(matches!(slice("tokens", odd, 1), Err(Refusal::Misaligned("tokens", 4))));
            assert!(matches!(slice("tokens", values.as_ptr(), usize::MAX), Err(Refusal::TooLong(..))));
            assert_eq!(slice::<u32>("tokens", std::ptr::null(), 0).expect("empty"), &[] as &[u32]);
            assert_eq!(slice("tokens", values.as_ptr(), 3).expect("whole"), &values);
        }
    }

    #[test]
    fn bad_utf8_is_named_with_its_place() {
        let bytes = b"ab\xff";
        // SAFETY: three bytes are there.
        let refusal = unsafe { text("prompt", bytes.as_ptr().cast(), 3) }.expect_err("0xff is never UTF-8");
        assert_eq!(refusal.to_string(), "prompt is not UTF-8: the byte at offset 2 is invalid");
    }

    #[test]
    fn a_small_buffer_is_left_alone_and_told_the_size() {
        let mut data = [7_u8; 4];
        let mut needed = 0;
        // SAFETY: the array has 4 bytes.
        let buffer = unsafe { Buffer::new("text", data.as_mut_ptr(), 4, &raw mut needed) }.expect("good pointers");
        let refusal = buffer.fill(b"hello").expect_err("5 bytes in 4");
        assert_eq!((refusal.status(), needed, data), (NVLLM_ERR_BUFFER_TOO_SMALL, 5, [7; 4]));
        // SAFETY: as above.
        let buffer = unsafe { Buffer::new("text", data.as_mut_ptr(), 4, &raw mut needed) }.expect("good pointers");
        buffer.fill(b"hey\0").expect("4 bytes in 4");
        assert_eq!((needed, data), (4, *b"hey\0"));
    }
}
