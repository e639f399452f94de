//! Functions on a bus that no firmware has set up: found, given addresses, and then driven.

use parking_lot::RawMutex;
use transom_guest::transport::{
    Interrupts, Registers, ShmRegion, Transport as _, TransportError,
    pci::{ConfigAccess, ConfigSpace, Ecam, FreeAddresses, Pci, Place, assign_bars, functions, read_bars},
};

use crate::{
    bring_up,
    fake::{BAR, BAR_LEN, Fake, Part, WINDOW_LEN},
};

/// The configuration of some functions, as an ECAM of one bus shows it.
struct Bus(Vec<(Place, Fake)>);

impl Bus {
    fn function(&self, offset: usize) -> Option<&Fake> {
        let place = |place: &Place| usize::from(place.device) << 15 | usize::from(place.function) << 12;
        self.0.iter().find(|(at, _)| place(at) == offset & !0xfff).map(|(_, function)| function)
    }
}

impl Registers for Bus {
    fn len_bytes(&self) -> usize {
        1 << 20
    }

    fn read_u8(&self, _: usize) -> u8 {
        panic!("the configuration is read by words")
    }

    fn read_u16(&self, _: usize) -> u16 {
        panic!("the configuration is read by words")
    }

    fn read_u32(&self, offset: usize) -> u32 {
        self.function(offset).map_or(u32::MAX, |function| ConfigSpace::read_u32(function, offset as u8))
    }

    fn write_u8(&self, _: usize, _: u8) {
        panic!("the configuration is written by words")
    }

    fn write_u16(&self, _: usize, _: u16) {
        panic!("the configuration is written by words")
    }

    fn write_u32(&self, offset: usize, value: u32) {
        if let Some(function) = self.function(offset) {
            ConfigSpace::write_u32(function, offset as u8, value);
        }
    }
}

impl Fake {
    /// Returns the device without addresses, of this identity.
    fn unassigned(identity: u32) -> Self {
        let fake = Self::default();
        fake.0.lock().put(0, &identity.to_le_bytes());
        for bar in 0..6 {
            let kind = ConfigSpace::read_u32(&fake, 0x10 + 4 * bar) & 0xf;
            let kind = if bar == 3 { 0 } else { kind };
            fake.0.lock().put(usize::from(0x10 + 4 * bar), &kind.to_le_bytes());
        }
        fake
    }
}

fn at(device: u8, function: u8) -> Place {
    Place { bus: 0, device, function }
}

#[test]
fn functions_of_a_device_are_found_if_its_first_one_says_that_there_are_more() {
    let lonely = Fake::unassigned(0x105a_1af4);
    let first = Fake::unassigned(0x1234_8086);
    first.0.lock().put(0x0c, &(1u32 << 23).to_le_bytes());
    let transitional = Fake::unassigned(0x1005_1af4);
    transitional.0.lock().put(0x2c, &(4u32 << 16).to_le_bytes());
    // The second function of a device whose first one does not know of it.
    let hidden = Fake::unassigned(0x105a_1af4);
    let bus = Bus(vec![(at(1, 0), lonely), (at(1, 1), hidden), (at(31, 0), first), (at(31, 7), transitional)]);
    let ecam = Ecam::new(bus);
    let found: Vec<_> = functions(&ecam, 0..=255).map(|function| (function.place(), function.virtio_type())).collect();
    assert_eq!(found, [(at(1, 0), Some(26)), (at(31, 0), None), (at(31, 7), Some(4))]);
}

#[test]
fn a_function_that_firmware_has_left_alone_gets_its_addresses_and_is_driven() {
    let fake = Fake::unassigned(0x105a_1af4);
    let ecam = Ecam::new(Bus(vec![(at(3, 0), fake.clone())]));
    let function = functions(&ecam, 0..=0).next().unwrap();
    assert_eq!(read_bars(&function).unwrap(), [None; 6]);
    // The window, of 64 bits, has no room in the first.
    let mut free = [BAR - 0x800..BAR + 0x10000, 1 << 40..1 << 41].map(FreeAddresses::new);
    assign_bars(&function, &mut free).unwrap();
    let bars = read_bars(&function).unwrap();
    assert_eq!(bars[2].map(|bar| (bar.address, bar.len_bytes)), Some((1 << 40, WINDOW_LEN)));
    assert_eq!(bars[4].map(|bar| (bar.address, bar.len_bytes)), Some((BAR, BAR_LEN.into())));
    let left = [BAR + u64::from(BAR_LEN)..BAR + 0x10000, (1 << 40) + WINDOW_LEN..1 << 41];
    assert_eq!(free, left.map(FreeAddresses::new));
    // Nothing is left to assign.
    assign_bars(&function, &mut []).unwrap();
    assert_eq!(read_bars(&function).unwrap(), bars);

    let device = open(&function, &fake).unwrap();
    bring_up(&device);
    let window = ShmRegion { address: 1 << 40, len_bytes: WINDOW_LEN };
    assert_eq!(device.shm_region(0).unwrap(), Some(window));
    assert_eq!(fake.0.lock().faults, [""; 0]);
}

fn open(function: &dyn ConfigSpace, fake: &Fake) -> Result<Pci<Part, RawMutex>, TransportError> {
    Pci::new(function, |range| fake.map(range), Interrupts::Polling)
}

#[test]
fn a_bus_without_room_is_an_error_and_narrow_registers_stay_below_4_gib() {
    let fake = Fake::unassigned(0x105a_1af4);
    let ecam = Ecam::new(Bus(vec![(at(3, 0), fake)]));
    let function = functions(&ecam, 0..=0).next().unwrap();
    let lacks = Err(TransportError::Lacks("addresses on the PCI bus for its BARs"));
    assert_eq!(assign_bars(&function, &mut [FreeAddresses::new(0x1000..0x9000)]), lacks);
    // There is room for the window, and none for the BAR of 32 bits.
    assert_eq!(assign_bars(&function, &mut [FreeAddresses::new(1 << 40..1 << 50)]), lacks);
    assert_eq!(read_bars(&function).unwrap()[4], None);
    assert_eq!(ecam.read_u32(at(4, 0), 0), u32::MAX);
}
