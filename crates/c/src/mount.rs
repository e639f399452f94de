//! From a device to a file system, and back.

#![expect(unsafe_code, reason = "functions of a C interface")]

use alloc::{boxed::Box, sync::Arc};
use core::{
    error::Error,
    ffi::{c_char, c_int},
    fmt::Write as _,
    ptr,
};

use transom_guest::{
    Errno,
    cache::CacheOptions,
    device::{DeviceError, Settings, VirtioFs},
    dma::{Direct, DmaChoice, DmaError},
    fs::Fs,
    session::{Session, SessionConfig},
    transport::{Interrupts, Transport, TransportError, mmio::Mmio, pci::Pci},
};

use crate::{
    memory::Memory,
    platform::{Kernel, RawLock},
    pointers::{Message, reference, status, store, take},
    registers::{AnyRegisters, PciFunction, TransomPci, TransomRegisters},
    share::TransomFs,
    table::{self, TransomPlatform},
};

/// See `transom.h`.
///
/// # Safety
/// Each pointer is null or points to what the header says. The table of the platform never changes; the registers are
/// the device's until the file system is unmounted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn transom_mount_mmio(
    platform: *const TransomPlatform,
    registers: *const TransomRegisters,
    fs: *mut *mut TransomFs,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    let open = || {
        // SAFETY: as the caller promises.
        let registers = unsafe { AnyRegisters::new(reference(registers)?) }?;
        Ok(Mmio::<_, RawLock>::new(registers, Interrupts::Polling))
    };
    // SAFETY: as the caller promises.
    status(unsafe { mount(platform, open, fs, message, message_len) })
}

/// See `transom.h`.
///
/// # Safety
/// As for [`transom_mount_mmio`]. What `map` has mapped stays mapped until the file system is unmounted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn transom_mount_pci(
    platform: *const TransomPlatform,
    pci: *const TransomPci,
    fs: *mut *mut TransomFs,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    let open = || {
        // SAFETY: as the caller promises.
        let function = unsafe { PciFunction::new(reference(pci)?) }?;
        Ok(Pci::<_, RawLock>::new(&function, |range| function.map(range), Interrupts::Polling))
    };
    // SAFETY: as the caller promises.
    status(unsafe { mount(platform, open, fs, message, message_len) })
}

/// # Safety
/// As for [`transom_mount_mmio`].
unsafe fn mount<T: Transport + 'static>(
    platform: *const TransomPlatform,
    open: impl FnOnce() -> Result<Result<T, TransportError>, Errno>,
    fs: *mut *mut TransomFs,
    message: *mut c_char,
    message_len: usize,
) -> Result<(), Errno> {
    // SAFETY: as the caller promises, here and below.
    let mut message = unsafe { Message::new(message, message_len) }?;
    // SAFETY: as above.
    unsafe { store(fs, ptr::null_mut()) }?;
    // SAFETY: as above.
    unsafe { table::set(platform) }?;
    let mounted = bring_up(open()?).map_err(|error| {
        message.explain(&*error);
        errno(&*error)
    })?;
    // SAFETY: as above.
    unsafe { store(fs, Box::into_raw(Box::new(TransomFs(Box::new(mounted))))) }
}

fn bring_up<T: Transport + 'static>(transport: Result<T, TransportError>) -> Result<Fs<Kernel>, Box<dyn Error>> {
    let dma = DmaChoice { direct: Some(Arc::new(Direct::new(Memory))), ..DmaChoice::default() };
    let device = VirtioFs::new(transport?, Arc::new(Kernel), &dma, Settings::default())?;
    let session = Session::begin(Arc::new(device), Arc::new(Kernel), SessionConfig::default())?;
    Ok(Fs::mount(session, CacheOptions::default()))
}

fn errno(error: &(dyn Error + 'static)) -> Errno {
    match error.downcast_ref() {
        Some(DeviceError::Dma(DmaError::Exhausted { .. })) => Errno::NOMEM,
        _ => Errno::NODEV,
    }
}

/// See `transom.h`.
///
/// # Safety
/// `fs` is null or a mounted file system, which nobody uses during this call or after it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn transom_unmount(fs: *mut TransomFs) -> c_int {
    // SAFETY: as the caller promises.
    status((|| unsafe { take(fs)?.0.unmount() })())
}

/// See `transom.h`.
///
/// # Safety
/// `fs` is null or a mounted file system.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn transom_syncfs(fs: *const TransomFs) -> c_int {
    // SAFETY: as the caller promises.
    status((|| unsafe { reference(fs)?.0.sync() })())
}

/// See `transom.h`.
///
/// # Safety
/// `message` is null or points to `message_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn transom_describe(error: c_int, message: *mut c_char, message_len: usize) -> c_int {
    let describe = || {
        // SAFETY: as the caller promises.
        let mut message = unsafe { Message::new(message, message_len) }?;
        // A message that does not fit is cut, which is not an error.
        let _ = write!(message, "{}", Errno::from_raw(error.unsigned_abs() as i32));
        Ok(())
    };
    status(describe())
}
