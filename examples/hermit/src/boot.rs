//! What Hermit's loader does: tells the kernel where it lies and what the machine has.
//!
//! QEMU loads kernel and application as one file, so nothing has to be unpacked.

#![allow(unsafe_code, reason = "the processor starts in a state that only assembly can leave")]

use core::{arch::global_asm, mem::MaybeUninit, num::NonZeroU64};

use fdt::Fdt;
use hermit_entry::{
    Entry,
    boot_info::{BootInfo, HardwareInfo, LoadInfo, PlatformInfo, RawBootInfo, TlsInfo},
};

// The firmware enters with one processor, in supervisor mode, with paging and interrupts off; `a0` is the number of its
// hart, and `a1` the address of the device tree. Hermit keeps its data of the processor in `gp`, which begins with 0.
global_asm!(
    r#"
    .section .boot, "ax"
    .global boot
boot:
    la sp, boot_stack_end
    li gp, 0
    li tp, 0
    j {enter}

    .section .bss
    .balign 4096
    .skip 131072
boot_stack_end:
    .text
    "#,
    enter = sym enter,
);

unsafe extern "C" {
    /// Hermit's entry point.
    fn _start(hart: usize, boot_info: &'static RawBootInfo) -> !;

    // The linker script defines these, some of them at one address.
    static image_start: [u8; 0];
    static image_end: [u8; 0];
    static tls_start: [u8; 0];
    static tls_data_end: [u8; 0];
    static tls_end: [u8; 0];
}

const _: Entry = _start;

/// Alignment of the variables that each task has of its own: as in the linker script.
const TLS_ALIGN: u64 = 64;
/// Hermit gives out memory by pages of this size.
const LARGE_PAGE_LEN: u64 = 2 << 20;

extern "C" fn enter(hart: usize, device_tree: usize) -> ! {
    static mut BOOT_INFO: MaybeUninit<RawBootInfo> = MaybeUninit::uninit();
    let of = |symbol: *const [u8; 0]| symbol.addr() as u64;
    let tls = of(&raw const tls_start);
    let memsz = of(&raw const tls_end) - tls;
    let tls_info = TlsInfo { start: tls, filesz: of(&raw const tls_data_end) - tls, memsz, align: TLS_ALIGN };
    let info = BootInfo {
        hardware_info: HardwareInfo {
            phys_addr_range: memory(device_tree),
            serial_port_base: None,
            device_tree: NonZeroU64::new(device_tree as u64),
        },
        load_info: LoadInfo {
            kernel_image_addr_range: of(&raw const image_start)..of(&raw const image_end),
            tls_info: (memsz != 0).then_some(tls_info),
        },
        platform_info: PlatformInfo::LinuxBoot,
    };
    // SAFETY: one processor is here, once; the kernel has the stack from now on.
    unsafe {
        let raw = &raw mut BOOT_INFO;
        _start(hart, (*raw).write(info.into()))
    }
}

/// Returns the memory that the kernel may use: up to the device tree, which QEMU puts near the end.
fn memory(device_tree: usize) -> core::ops::Range<u64> {
    // SAFETY: the firmware has left a device tree there, which nobody changes.
    let tree = unsafe { Fdt::from_ptr(device_tree as *const u8) }.expect("there is no device tree");
    let region = tree.memory().regions().next().expect("the machine has memory");
    let start = region.starting_address as u64;
    let end = start + region.size.unwrap_or(0) as u64;
    let tree = device_tree as u64 / LARGE_PAGE_LEN * LARGE_PAGE_LEN;
    start..if (start..end).contains(&tree) { tree } else { end }
}
