//! The PCI bus of QEMU's `virt` machines: no firmware has set it up, so this is all that it takes.

use alloc::{boxed::Box, sync::Arc};

use transom_guest::transport::{
    Interrupts, VolatileRegisters,
    fdt::PciHost,
    pci::{ConfigSpace as _, Ecam, FreeAddresses, Function, assign_bars},
};

use super::{
    Failure, Found, arch, by_name,
    console::say,
    dirty,
    interrupts::Wakes,
    jobs, mapping, memory, messages, pci,
    platform::Bare,
    processors, scenario,
    share::{Share, Wait},
};

/// The word of the configuration that has the pin of the function's interrupt in its second byte.
const INTERRUPT_AT: u8 = 0x3c;

/// Uses the file system on the bus, if there is one: by polling, by its line, and by messages, each as far as the
/// machine has that.
pub(super) fn run(
    host: &PciHost<'_>,
    platform: &Arc<Bare>,
    has_messages: bool,
    found: &mut Found,
) -> Result<(), Failure> {
    let access = Ecam::new(memory::registers(host.address, host.len_bytes)?);
    let Some(function) = pci::find(&access, found) else { return Ok(()) };
    assign_bars(&function, &mut host.memory.clone().map(FreeAddresses::new))?;
    say!("a file system on the PCI bus, from the device tree");
    found.file_systems += 1;
    let share = Share::mount(pci::open(&function, Interrupts::Polling)?, platform, Wait::Polling)?;
    if by_name::run(&share)? {
        return share.unmount();
    }
    scenario::run(share.fs())?;
    share.use_versions()?;
    if share.has_window() {
        mapping::run(share.fs())?;
        say!("ok: entries marked dirty by faults: {}", dirty::marked());
    }
    let has_window = share.has_window();
    share.unmount()?;
    if arch::has_lines() {
        use_line(host, &function, platform)?;
    }
    // QEMU's generic device, which has the window, has one message only.
    if has_messages && !has_window {
        messages::run(&function, platform)?;
        if processors::running() > 1 || jobs::start_second()? {
            messages::run_on_both(&function, platform)?;
        }
    }
    Ok(())
}

/// Uses the file system by its line, with two processors if files can be mapped.
fn use_line(
    host: &PciHost<'_>,
    function: &Function<'_, Ecam<VolatileRegisters>>,
    platform: &Arc<Bare>,
) -> Result<(), Failure> {
    let pin = (function.read_u32(INTERRUPT_AT) >> 8) as u8;
    let line = host.line(function.place(), pin)?.ok_or("the device tree does not say which line the device has")?;
    arch::use_line(line);
    let interrupts = Interrupts::Line(Box::new(Wakes));
    let share = Share::mount(pci::open(function, interrupts)?, platform, Wait::Sleeping)?;
    share.use_until_woken("a line of the PCI bus", 0)?;
    if share.has_window() && jobs::start_second()? {
        mapping::run_on_both(share.fs())?;
    }
    share.unmount()
}
