use super::*;

const PAGE: usize = 4096;

/// Two regions that touch, and one elsewhere.
fn memory() -> GuestRam {
    let regions = [(GuestAddress(0), PAGE), (GuestAddress(PAGE as u64), PAGE), (GuestAddress(1 << 30), PAGE)];
    GuestRam::from_ranges(&regions).unwrap()
}

/// Returns the lengths of the pieces, up to the first that is not in memory.
fn lens(slices: impl Iterator<Item = Result<VolatileSlice<'static>, Error>>) -> Vec<Option<usize>> {
    slices.map(|slice| slice.ok().map(|slice| slice.len())).collect()
}

#[test]
fn a_view_finds_what_the_memory_has_whatever_was_used_before() {
    let memory: &'static GuestRam = Box::leak(Box::new(memory()));
    let far = 1 << 30;
    let addrs = [0, 100, 4095, 4096, 8191, 8192, far - 1, far, far + 4095, far + 4096, u64::MAX];
    let lens_asked = [0, 1, 2, 4096, 5000, 10_000, usize::MAX];
    for first in addrs {
        for addr in addrs {
            for len in lens_asked {
                let view = MemoryView::new(memory);
                let _ = view.slices(GuestAddress(first), 1).count();
                let found = lens(view.slices(GuestAddress(addr), len));
                let expected = lens(GuestMemoryBackend::get_slices(memory, GuestAddress(addr), len));
                assert_eq!(found, expected, "{len} bytes at {addr:#x} after {first:#x}");
            }
        }
    }
}

#[test]
fn what_a_view_writes_is_where_the_memory_has_it() {
    let memory = memory();
    let view = MemoryView::new(&memory);
    for (value, addr) in [(1u16, 0), (2, 1 << 30), (3, 4094), (4, 4096)] {
        view.write_obj(value, GuestAddress(addr)).unwrap();
        assert_eq!(memory.read_obj::<u16>(GuestAddress(addr)).unwrap(), value);
        assert_eq!(view.read(GuestAddress(addr)), Some(value));
    }
    view.write_slice(&[7; 8], GuestAddress(4092)).unwrap();
    assert_eq!(memory.read_obj::<[u8; 8]>(GuestAddress(4092)).unwrap(), [7; 8]);
    assert_eq!(view.read(GuestAddress(4092)), Some([7u8; 8]), "in two regions");
    assert_eq!(view.read::<u64>(GuestAddress(8190)), None, "past the end");
}
