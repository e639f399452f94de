#![expect(unsafe_code, reason = "an access to a device is one instruction, with the barriers that devices need")]
//! Single loads and stores of device registers.
//!
//! Each access is one instruction of the plainest form, of exactly the width asked for. A volatile access may compile
//! to one that also changes its address register, or that takes part in arithmetic; a hypervisor that emulates the
//! device cannot decode all of these. The compiler's fences order memory among processors only, which on aarch64 and
//! riscv64 does not order it with devices.

/// Implements one architecture: for each width, the functions and their instructions. `$before` precedes a store, so
/// that what was stored to memory is visible to the device; `$after` follows a load, so that later loads see what the
/// device had stored.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
macro_rules! accesses {
    ($after:literal, $before:literal:
     $($read:ident $load:literal, $write:ident $store:literal, $value:ty, $class:ident;)*) => {
        $(
            /// Loads from `place`.
            ///
            /// # Safety
            /// `place` is aligned, and mapped for as long as this takes.
            pub(super) unsafe fn $read(place: *const $value) -> $value {
                let value;
                // SAFETY: the caller guarantees that the load is possible. Not `nomem`: memory accesses stay in order.
                unsafe {
                    core::arch::asm!($load, $after, place = in(reg) place, value = out($class) value,
                        options(nostack, preserves_flags));
                }
                value
            }

            /// Stores to `place`.
            ///
            /// # Safety
            /// As for loads, and mapped for writing.
            pub(super) unsafe fn $write(place: *mut $value, value: $value) {
                // SAFETY: as above.
                unsafe {
                    core::arch::asm!($before, $store, place = in(reg) place, value = in($class) value,
                        options(nostack, preserves_flags));
                }
            }
        )*
    };
}

// Loads and stores reach an uncached device in program order; stores to memory come before later ones to a device.
#[cfg(target_arch = "x86_64")]
accesses! { "", "":
    read_u8 "mov {value}, byte ptr [{place}]", write_u8 "mov byte ptr [{place}], {value}", u8, reg_byte;
    read_u16 "mov {value:x}, word ptr [{place}]", write_u16 "mov word ptr [{place}], {value:x}", u16, reg;
    read_u32 "mov {value:e}, dword ptr [{place}]", write_u32 "mov dword ptr [{place}], {value:e}", u32, reg;
}

// Outer shareable: the domain that devices are in.
#[cfg(target_arch = "aarch64")]
accesses! { "dmb osh", "dmb osh":
    read_u8 "ldrb {value:w}, [{place}]", write_u8 "strb {value:w}, [{place}]", u8, reg;
    read_u16 "ldrh {value:w}, [{place}]", write_u16 "strh {value:w}, [{place}]", u16, reg;
    read_u32 "ldr {value:w}, [{place}]", write_u32 "str {value:w}, [{place}]", u32, reg;
}

// `i` and `o` are loads and stores of devices, `r` and `w` those of memory.
#[cfg(target_arch = "riscv64")]
accesses! { "fence i, iorw", "fence iorw, o":
    read_u8 "lbu {value}, 0({place})", write_u8 "sb {value}, 0({place})", u8, reg;
    read_u16 "lhu {value}, 0({place})", write_u16 "sh {value}, 0({place})", u16, reg;
    read_u32 "lw {value}, 0({place})", write_u32 "sw {value}, 0({place})", u32, reg;
}

/// Implements the other architectures, by what the language has.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
macro_rules! accesses {
    ($($read:ident, $write:ident, $value:ty;)*) => {
        $(
            /// Loads from `place`.
            ///
            /// # Safety
            /// `place` is aligned, and mapped for as long as this takes.
            pub(super) unsafe fn $read(place: *const $value) -> $value {
                // SAFETY: the caller guarantees that the load is possible.
                let value = unsafe { place.read_volatile() };
                core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
                value
            }

            /// Stores to `place`.
            ///
            /// # Safety
            /// As for loads, and mapped for writing.
            pub(super) unsafe fn $write(place: *mut $value, value: $value) {
                core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
                // SAFETY: as above.
                unsafe { place.write_volatile(value) };
            }
        )*
    };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
accesses! { read_u8, write_u8, u8; read_u16, write_u16, u16; read_u32, write_u32, u32; }
