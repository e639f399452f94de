//! The table of functions and the registers of a kernel in C: a virtio-mmio device, served by the real server.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]
#![expect(unsafe_code, reason = "calls a C interface")]

#[path = "../../../guest/tests/device/fake.rs"]
#[allow(dead_code, reason = "the tests of the device use more of it")]
mod fake;
mod kernel;
#[path = "../../../guest/tests/device/memory.rs"]
#[allow(dead_code, reason = "the tests of the device use more of it")]
mod memory;
mod registers;
#[path = "../../../guest/tests/device/server.rs"]
mod server;

use std::{
    ffi::{CStr, c_char},
    fs, ptr,
    sync::Arc,
};

use fake::Fake;
use registers::Mmio;
use server::serve_directory;
use transom_c::{
    TransomFs, TransomPlatform, TransomRegisters, transom_close, transom_mount_mmio, transom_open, transom_read,
    transom_unmount, transom_write,
};

fn mount(platform: *const TransomPlatform, registers: &TransomRegisters) -> Result<*mut TransomFs, (i32, String)> {
    let (mut fs, mut message) = (ptr::dangling_mut(), [1 as c_char; 200]);
    // SAFETY: the table is a static one, or null; the registers, and room for the results, are here.
    let status = unsafe { transom_mount_mmio(platform, registers, &raw mut fs, message.as_mut_ptr(), message.len()) };
    // SAFETY: the message ends with a NUL.
    let message = unsafe { CStr::from_ptr(message.as_ptr()) }.to_str().unwrap().to_owned();
    assert_eq!(status == 0, !fs.is_null());
    if status == 0 { Ok(fs) } else { Err((status, message)) }
}

#[test]
fn a_kernel_in_c_mounts_the_file_system_behind_its_registers() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "0123456789").unwrap();
    let fake = Arc::new(Fake::new(fake::VERSION_1 | fake::EVENT_IDX, 1, 64));
    let server = serve_directory(&fake, dir.path());
    let device = Mmio::new(&fake);
    let registers = registers::of(&device);
    let fs = mount(kernel::table(), &registers).unwrap();

    let (mut file, mut room) = (ptr::null_mut(), [0; 20]);
    // SAFETY: the file system is mounted, the path is a string, and the rest is room of the lengths that are passed.
    unsafe {
        assert_eq!(transom_open(fs, c"file".as_ptr(), 2, 0, &raw mut file), 0);
        assert_eq!(transom_read(file, 2, room.as_mut_ptr().cast(), room.len()), 8);
        assert_eq!(&room[..8], b"23456789");
        assert_eq!(transom_write(file, 0, b"from C".as_ptr().cast(), 6), 6);
        assert_eq!(transom_close(file), 0);
        assert_eq!(transom_unmount(fs), 0);
    }
    assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"from C6789");
    server.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn what_cannot_be_mounted_is_an_error_with_a_message() {
    let fake = Arc::new(Fake::new(fake::VERSION_1, 1, 64));
    let device = Mmio::new(&fake);
    let good = registers::of(&device);
    let refused = |registers| mount(kernel::table(), &registers).err().unwrap();
    assert_eq!(refused(TransomRegisters { len: 16, ..good }).0, -19);
    assert!(refused(TransomRegisters { len: 16, ..good }).1.contains("shorter than 256 bytes"));
    assert_eq!(refused(TransomRegisters { write: None, ..good }).0, -22);
    assert_eq!(refused(TransomRegisters { read: None, write: None, base: ptr::null_mut(), ..good }).0, -14);
    assert_eq!(mount(ptr::null(), &good).err().unwrap().0, -14);
    // Another table than that of an earlier mount, or one of another version of the header.
    let other = Box::leak(Box::new(kernel::copy()));
    assert_eq!(mount(other, &good).err().unwrap().0, -16);
    let short = Box::leak(Box::new(TransomPlatform { size: 8, ..kernel::copy() }));
    assert_eq!(mount(short, &good).err().unwrap().0, -22);
    let without_clock = Box::leak(Box::new(TransomPlatform { now_ns: None, ..kernel::copy() }));
    assert_eq!(mount(without_clock, &good).err().unwrap().0, -22);
}
