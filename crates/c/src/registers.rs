//! Registers and configuration spaces that C accesses.

#![expect(unsafe_code, reason = "calls functions of C")]

use core::{ffi::c_void, ptr::NonNull};

use transom_guest::{
    Errno,
    transport::{
        Registers, TransportError, VolatileRegisters,
        pci::{BarRange, ConfigSpace},
    },
};

/// `struct transom_registers`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[expect(missing_docs, reason = "the header says it")]
pub struct TransomRegisters {
    pub base: *mut c_void,
    pub len: usize,
    pub context: *mut c_void,
    pub read: Option<unsafe extern "C" fn(*mut c_void, usize, usize) -> u32>,
    pub write: Option<unsafe extern "C" fn(*mut c_void, usize, usize, u32)>,
}

/// `struct transom_pci`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[expect(missing_docs, reason = "the header says it")]
pub struct TransomPci {
    pub context: *mut c_void,
    pub config_read: Option<unsafe extern "C" fn(*mut c_void, u8) -> u32>,
    pub config_write: Option<unsafe extern "C" fn(*mut c_void, u8, u32)>,
    pub map: Option<unsafe extern "C" fn(*mut c_void, u64, u64) -> *mut c_void>,
}

/// Registers in memory, or behind functions.
pub(crate) enum AnyRegisters {
    Memory(VolatileRegisters),
    Functions(Functions),
}

pub(crate) struct Functions {
    context: *mut c_void,
    len_bytes: usize,
    read: unsafe extern "C" fn(*mut c_void, usize, usize) -> u32,
    write: unsafe extern "C" fn(*mut c_void, usize, usize, u32),
}

// SAFETY: the header says that any thread may call the functions.
unsafe impl Send for Functions {}
// SAFETY: as above, also at the same time: each access is one of a register.
unsafe impl Sync for Functions {}

impl AnyRegisters {
    /// Errors: EFAULT without an address and without functions, EINVAL for an address that is not a multiple of 4 or
    /// for one function without the other.
    ///
    /// # Safety
    /// The registers are as the header says, until the value is dropped.
    pub(crate) unsafe fn new(registers: &TransomRegisters) -> Result<Self, Errno> {
        let &TransomRegisters { base, len: len_bytes, context, read, write } = registers;
        match (read, write) {
            (Some(read), Some(write)) => Ok(Self::Functions(Functions { context, len_bytes, read, write })),
            (None, None) => {
                let start = NonNull::new(base.cast::<u8>()).ok_or(Errno::FAULT)?;
                if !start.addr().get().is_multiple_of(4) {
                    return Err(Errno::INVAL);
                }
                // SAFETY: as the caller promises; the alignment was just checked.
                Ok(Self::Memory(unsafe { VolatileRegisters::new(start, len_bytes) }))
            }
            _ => Err(Errno::INVAL),
        }
    }
}

impl Functions {
    fn read(&self, offset: usize, width: usize) -> u32 {
        match offset.checked_add(width) {
            // SAFETY: the caller of `AnyRegisters::new` promises functions that may be called so.
            Some(end) if end <= self.len_bytes => unsafe { (self.read)(self.context, offset, width) },
            _ => u32::MAX,
        }
    }

    fn write(&self, offset: usize, width: usize, value: u32) {
        if offset.checked_add(width).is_some_and(|end| end <= self.len_bytes) {
            // SAFETY: as in `read`.
            unsafe { (self.write)(self.context, offset, width, value) };
        }
    }
}

macro_rules! access {
    ($read:ident, $write:ident, $value:ty, $width:literal) => {
        fn $read(&self, offset_bytes: usize) -> $value {
            match self {
                Self::Memory(memory) => memory.$read(offset_bytes),
                Self::Functions(functions) => functions.read(offset_bytes, $width) as $value,
            }
        }

        fn $write(&self, offset_bytes: usize, value: $value) {
            match self {
                Self::Memory(memory) => memory.$write(offset_bytes, value),
                Self::Functions(functions) => functions.write(offset_bytes, $width, value.into()),
            }
        }
    };
}

impl Registers for AnyRegisters {
    fn len_bytes(&self) -> usize {
        match self {
            Self::Memory(memory) => memory.len_bytes(),
            Self::Functions(functions) => functions.len_bytes,
        }
    }

    access!(read_u8, write_u8, u8, 1);
    access!(read_u16, write_u16, u16, 2);
    access!(read_u32, write_u32, u32, 4);
}

/// A PCI function, with all of its functions in C.
pub(crate) struct PciFunction {
    context: *mut c_void,
    config_read: unsafe extern "C" fn(*mut c_void, u8) -> u32,
    config_write: unsafe extern "C" fn(*mut c_void, u8, u32),
    map: unsafe extern "C" fn(*mut c_void, u64, u64) -> *mut c_void,
}

impl PciFunction {
    /// Errors: EINVAL if a function is missing.
    ///
    /// # Safety
    /// The functions do what the header says, until the value is dropped, and what they map stays mapped.
    pub(crate) unsafe fn new(pci: &TransomPci) -> Result<Self, Errno> {
        let (Some(config_read), Some(config_write), Some(map)) = (pci.config_read, pci.config_write, pci.map) else {
            return Err(Errno::INVAL);
        };
        Ok(Self { context: pci.context, config_read, config_write, map })
    }

    pub(crate) fn map(&self, range: BarRange) -> Result<VolatileRegisters, TransportError> {
        // SAFETY: the caller of `new` promises a function that may be called with a range of a BAR.
        let start = unsafe { (self.map)(self.context, range.address, range.len_bytes) };
        let start = NonNull::new(start.cast::<u8>()).filter(|start| start.addr().get().is_multiple_of(4));
        let start = start.ok_or(TransportError::Lacks("registers that the kernel can map"))?;
        // SAFETY: the function has mapped this range for good; its address was just checked.
        Ok(unsafe { VolatileRegisters::new(start, range.len_bytes as usize) })
    }
}

impl ConfigSpace for PciFunction {
    fn read_u32(&self, offset_bytes: u8) -> u32 {
        // SAFETY: the caller of `new` promises a function that may be called so.
        unsafe { (self.config_read)(self.context, offset_bytes) }
    }

    fn write_u32(&self, offset_bytes: u8, value: u32) {
        // SAFETY: as above.
        unsafe { (self.config_write)(self.context, offset_bytes, value) };
    }
}
