//! Device trees: those of QEMU's machines in outline, and blobs of anything.

use proptest::prelude::*;
use transom_guest::transport::{
    fdt::{Fdt, FdtError, MmioDevice},
    pci::Place,
};

/// Writes a tree.
#[derive(Default)]
struct Writer {
    structure: Vec<u8>,
    strings: Vec<u8>,
}

impl Writer {
    fn word(mut self, word: u32) -> Self {
        self.structure.extend(word.to_be_bytes());
        self
    }

    fn padded(mut self, bytes: &[u8]) -> Self {
        self.structure.extend(bytes);
        self.structure.resize(self.structure.len().next_multiple_of(4), 0);
        self
    }

    fn begin(self, name: &str) -> Self {
        self.word(1).padded(format!("{name}\0").as_bytes())
    }

    fn end(self) -> Self {
        self.word(2)
    }

    fn bytes(mut self, name: &str, value: &[u8]) -> Self {
        let at = self.strings.len() as u32;
        self.strings.extend(format!("{name}\0").as_bytes());
        self.word(3).word(value.len() as u32).word(at).padded(value)
    }

    fn words(self, name: &str, words: &[u32]) -> Self {
        let value: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        self.bytes(name, &value)
    }

    fn cells(self, address: u32, size: u32) -> Self {
        self.words("#address-cells", &[address]).words("#size-cells", &[size])
    }

    fn device(self, reg: &[u32], interrupts: &[u32]) -> Self {
        let node = self.begin("virtio_mmio@0").words("interrupts", interrupts).words("reg", reg);
        node.bytes("compatible", b"virtio,mmio\0").end()
    }

    fn blob(self) -> Vec<u8> {
        let Self { structure, strings } = self.word(9);
        let total = 40 + structure.len() + strings.len();
        let strings_at = 40 + structure.len();
        let header = [0xd00d_feed, total, 40, strings_at, 40, 17, 16, 0, strings.len(), structure.len()];
        let header = header.iter().flat_map(|&word| (word as u32).to_be_bytes()).collect::<Vec<_>>();
        [header, structure, strings].concat()
    }
}

fn devices(blob: &[u8]) -> Result<Vec<MmioDevice>, FdtError> {
    Fdt::new(blob)?.virtio_mmio().collect()
}

fn device(address: u64, interrupt: u32) -> MmioDevice {
    MmioDevice { address, len_bytes: 0x200, interrupt: Some(interrupt) }
}

#[test]
fn the_devices_of_aarch64_lie_at_the_root_and_have_interrupts_of_three_words() {
    let tree = Writer::default().begin("").cells(2, 2);
    let tree = tree.begin("memory@40000000").words("reg", &[0, 0x4000_0000, 0, 0x1000]).end();
    let tree = tree.device(&[0, 0xa00_0000, 0, 0x200], &[0, 16, 1]).device(&[1, 0xa00_0200, 0, 0x200], &[0, 17, 1]);
    let found = devices(&tree.end().blob()).unwrap();
    assert_eq!(found, [device(0xa00_0000, 16), device(0x1_0a00_0200, 17)]);
}

#[test]
fn the_devices_of_riscv64_lie_on_a_bus_whose_addresses_are_the_processors() {
    let tree = Writer::default().begin("").cells(2, 2).begin("soc").bytes("ranges", b"").cells(2, 2);
    let tree = tree.device(&[0, 0x1000_1000, 0, 0x200], &[1]).end().end();
    assert_eq!(devices(&tree.blob()).unwrap(), [device(0x1000_1000, 1)]);
}

#[test]
fn addresses_on_a_bus_are_translated_and_those_out_of_reach_are_left_out() {
    let bus = |ranges: &[u32]| {
        let tree = Writer::default().begin("").cells(2, 1).begin("bus").cells(1, 1).words("ranges", ranges);
        devices(&tree.device(&[0x1000, 0x200], &[5]).end().end().blob()).unwrap()
    };
    // Child, parent in two words, length.
    assert_eq!(bus(&[0x5000, 0, 0, 0x1000, 0, 2, 0x3000_0000, 0x2000]), [device(0x2_3000_1000, 5)]);
    assert_eq!(bus(&[0x1000, 0, 0, 0x100]), [], "only half of it is within the range");
    let tree = Writer::default().begin("").cells(2, 1).begin("bus").cells(1, 1);
    assert_eq!(devices(&tree.device(&[0x1000, 0x200], &[5]).end().end().blob()).unwrap(), []);
}

/// A bridge as QEMU's `virt` has it: ranges of I/O ports and of both kinds of memory, and interrupts of each device.
fn bridge(tree: Writer, memory: [u32; 14], interrupts: &[u32]) -> Writer {
    let tree = tree.begin("pci@30000000").bytes("compatible", b"pci-host-ecam-generic\0").cells(3, 2);
    let tree = tree.words("reg", &[0x40, 0x1000_0000, 0, 0x1000_0000]);
    let io = [0x0100_0000, 0, 0, 0, 0x300_0000, 0, 0x10000];
    let tree = tree.words("ranges", &[&io[..], &memory].concat()).words("#interrupt-cells", &[1]);
    tree.words("interrupt-map-mask", &[0x1800, 0, 0, 7]).words("interrupt-map", interrupts).end()
}

const MEMORY: [u32; 14] = [0x0200_0000, 0, 0x4000_0000, 0, 0x4000_0000, 0, 0x4000_0000, 0x4300_0000, 4, 0, 4, 0, 4, 0];

#[test]
fn a_bridge_says_where_the_configuration_is_which_addresses_are_free_and_how_lines_are_connected() {
    let place = |device| Place { bus: 0, device, function: 0 };
    // A PLIC, whose interrupts have one word, after the bridge; and a GIC before it, with two words of address and
    // three of interrupt.
    let plic = [[0, 0, 0, 1, 5, 32], [0, 0, 0, 2, 5, 33], [0x800, 0, 0, 1, 5, 33], [0x800, 0, 0, 2, 5, 34]].concat();
    let tree = bridge(Writer::default().begin("").cells(2, 2), MEMORY, &plic);
    let tree = tree.begin("plic").words("phandle", &[5]).words("#interrupt-cells", &[1]).words("#address-cells", &[0]);
    let blob = tree.end().end().blob();
    let tree = Fdt::new(&blob).unwrap();
    let host = tree.pci_host().unwrap().unwrap();
    assert_eq!((host.address, host.len_bytes), (0x40_1000_0000, 0x1000_0000));
    assert_eq!(host.memory, [0x4000_0000..0x8000_0000, 0x4_0000_0000..0x8_0000_0000]);
    let lines = [(0, 1), (0, 2), (1, 1), (1, 2), (4, 1), (2, 1), (0, 3), (0, 0)]
        .map(|(device, pin)| host.line(place(device), pin).unwrap());
    // Device 4 is connected as device 0: the mask leaves two bits of its number.
    assert_eq!(lines, [Some(32), Some(33), Some(33), Some(34), Some(32), None, None, None]);

    let gic = [0, 0, 0, 1, 7, 0, 0, 0, 3, 4, 0x800, 0, 0, 1, 7, 0, 0, 0, 4, 4];
    let tree = Writer::default().begin("").cells(2, 2).begin("intc").words("phandle", &[7]).cells(2, 2);
    let blob = bridge(tree.words("#interrupt-cells", &[3]).end(), MEMORY, &gic).end().blob();
    let host = Fdt::new(&blob).unwrap().pci_host().unwrap().unwrap();
    assert_eq!([0, 1].map(|device| host.line(place(device), 1).unwrap()), [Some(3), Some(4)]);
}

#[test]
fn what_a_bridge_does_not_say_is_absent() {
    let at_root = || Writer::default().begin("").cells(2, 2);
    assert!(Fdt::new(&at_root().end().blob()).unwrap().pci_host().unwrap().is_none());
    // Memory elsewhere on the bus than for the processor, and a connection to a controller that there is not.
    let moved = [0x0200_0000, 0, 0, 0, 0x4000_0000, 0, 0x4000_0000, 0x4300_0000, 0, 0, 4, 0, 4, 0];
    let blob = bridge(at_root(), moved, &[0, 0, 0, 1, 5, 32]).end().blob();
    let host = Fdt::new(&blob).unwrap().pci_host().unwrap().unwrap();
    assert_eq!(host.memory, [0..0, 0..0]);
    assert_eq!(host.line(Place { bus: 0, device: 0, function: 0 }, 1), Ok(None));
}

#[test]
fn the_registers_of_a_device_are_found_by_what_it_is_compatible_with() {
    let frame = |tree: Writer, name: &[u8], reg: &[u32]| tree.begin("x").bytes("compatible", name).words("reg", reg);
    let tree = Writer::default().begin("").cells(2, 2).begin("intc").cells(2, 2).bytes("ranges", b"");
    let tree = frame(tree, b"riscv,imsics\0", &[0, 0x2400_0000, 0, 0x1000]).bytes("status", b"disabled\0").end();
    let tree = frame(tree, b"qemu,imsics\0riscv,imsics\0", &[0, 0x2800_0000, 0, 0x2000]).end();
    let blob = frame(tree, b"riscv,imsics\0", &[0, 0x2900_0000, 0, 0x1000]).end().end().end().blob();
    let tree = Fdt::new(&blob).unwrap();
    assert_eq!(tree.registers_of("riscv,imsics"), Ok(Some((0x2800_0000, 0x2000))));
    assert_eq!(tree.registers_of("riscv"), Ok(None));
}

#[test]
fn what_is_disabled_or_something_else_is_left_out() {
    let tree = Writer::default().begin("").cells(1, 1);
    let tree = tree.begin("a").bytes("status", b"disabled\0").words("reg", &[0x1000, 0x200]);
    let tree = tree.bytes("compatible", b"virtio,mmio\0").end();
    let tree = tree.begin("b").bytes("compatible", b"arm,pl011\0").words("reg", &[0x1000, 0x200]).end();
    let tree = tree.begin("c").bytes("compatible", b"vendor,it\0virtio,mmio\0").words("reg", &[0x3000, 0x200]).end();
    let found = devices(&tree.end().blob()).unwrap();
    assert_eq!(found, [MmioDevice { interrupt: None, ..device(0x3000, 0) }]);
}

#[test]
fn what_is_no_tree_or_a_broken_one_is_named() {
    let good = Writer::default().begin("").end().blob();
    assert_eq!(devices(&good), Ok(vec![]));
    let with = |at: usize, word: u32| {
        let mut blob = good.clone();
        blob[at..at + 4].copy_from_slice(&word.to_be_bytes());
        devices(&blob)
    };
    assert_eq!(with(0, 0x1234), Err(FdtError::NoTree(0x1234)));
    assert_eq!(with(20, 16), Err(FdtError::Version(16)));
    assert_eq!(with(24, 18), Err(FdtError::Version(17)));
    for (at, word) in [(4, 0), (4, u32::MAX), (4, 1 << 20), (8, u32::MAX), (36, 1 << 20), (32, u32::MAX)] {
        assert!(matches!(with(at, word), Err(FdtError::Broken(_))), "{at} {word}");
    }
    let deep = (0..100).fold(Writer::default(), |tree, _| tree.begin("x")).blob();
    assert!(matches!(devices(&deep), Err(FdtError::Broken(what)) if what.contains("16 nodes")));
    assert!(matches!(devices(&Writer::default().end().blob()), Err(FdtError::Broken(_))));
}

fn token() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 1u32..5, 1 => Just(9), 2 => 0u32..40, 1 => any::<u32>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn whatever_a_blob_says_reading_it_ends_and_what_is_found_is_possible(
        words in prop::collection::vec(token(), 0..200),
        names in prop::collection::vec(prop_oneof![
            Just("reg"), Just("ranges"), Just("compatible"), Just("status"), Just("#address-cells"), Just("interrupts"),
            Just("interrupt-map"), Just("phandle"),
        ], 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let tree = Writer { strings: names.join("\0").into_bytes(), ..Writer::default() };
        let blob = words.into_iter().fold(tree, Writer::word).blob();
        for blob in [&blob[..], &blob[..cut.index(blob.len())]] {
            let Ok(tree) = Fdt::new(blob) else { continue };
            if let Ok(Some(host)) = tree.pci_host() {
                let _ = host.line(Place { bus: 0, device: 1, function: 0 }, 1);
            }
            let found: Vec<_> = tree.virtio_mmio().collect();
            prop_assert!(found.len() <= blob.len());
            for device in found.into_iter().flatten() {
                prop_assert!(device.len_bytes > 0 && device.address.checked_add(device.len_bytes).is_some());
            }
        }
    }
}
