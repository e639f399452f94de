//! An application of the unikernel Hermit that uses a share of the host: by Hermit's descriptors and by address.
//!
//! It reads `input`, writes its bytes to `output` in reverse order, and maps `table`, whose bytes it inverts. What it
//! has done goes to the console; the host can compare the files.

#![allow(unsafe_code, reason = "Hermit calls the application by name")]
#![no_std]
#![no_main]

extern crate alloc;

mod boot;

use alloc::{format, string::String, vec, vec::Vec};

use hermit::{
    fs::{self, File},
    io::{Read, Write},
    println, transom,
};

/// Called by Hermit, in a task of its own, once the kernel is up.
#[unsafe(no_mangle)]
extern "C" fn runtime_entry(_argc: i32, _argv: *const *const u8, _env: *const *const u8) -> ! {
    let result = read_and_write().and_then(|()| map());
    match &result {
        Ok(()) => println!("all is well"),
        Err(error) => println!("FAILED: {error}"),
    }
    hermit::syscalls::sys_exit(result.is_err().into())
}

/// Uses the share by descriptors.
fn read_and_write() -> Result<(), String> {
    let mut bytes = Vec::new();
    let mut file = File::open("/share/input").map_err(|error| format!("open input: {error:?}"))?;
    let len = file.metadata().map_err(|error| format!("stat input: {error:?}"))?.len();
    bytes.resize(len, 0);
    let mut read = 0;
    while read < len {
        match file.read(&mut bytes[read..]).map_err(|error| format!("read input: {error:?}"))? {
            0 => break,
            more => read += more,
        }
    }
    let sum: u64 = bytes.iter().copied().map(u64::from).sum();
    println!("ok: read {read} of {len} bytes of sum {sum}");
    bytes.reverse();
    let mut output = File::create("/share/output").map_err(|error| format!("create output: {error:?}"))?;
    output.write_all(&bytes).map_err(|error| format!("write output: {error:?}"))?;
    let entries = fs::readdir("/share").map_err(|error| format!("list: {error:?}"))?;
    let mut names: Vec<String> = entries.into_iter().map(|entry| entry.name).collect();
    names.sort();
    println!("ok: wrote them in reverse order, and found {names:?}");
    Ok(())
}

/// Uses a file of the share by address.
fn map() -> Result<(), String> {
    let len = fs::metadata("/share/table").map_err(|error| format!("stat table: {error:?}"))?.len();
    let mapping = transom::map("/table", len).map_err(|error| format!("map table: {error:?}"))?;
    let mut bytes = vec![0; len];
    mapping.load(0, &mut bytes);
    let sum: u64 = bytes.iter().copied().map(u64::from).sum();
    println!("ok: loaded {len} bytes of sum {sum}");
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
    mapping.store(0, &bytes);
    let stored = mapping.sync().map_err(|error| format!("sync table: {error:?}"))?;
    println!("ok: stored to {stored} pages");
    mapping.store(4096, &[!bytes[4096]]);
    mapping.store(4096, &[bytes[4096]]);
    let stored = mapping.sync().map_err(|error| format!("sync table: {error:?}"))?;
    println!("ok: stored to {stored} pages again");
    Ok(())
}
