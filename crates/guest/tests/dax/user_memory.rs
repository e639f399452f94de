//! Reads and writes of lists and of memory that may fault, through a window, compared with a plain copy of the file.

use proptest::prelude::*;
use transom_guest::{dax::RANGE_LEN, fs::OpenOptions};

use crate::{
    fake::share,
    paged::{Memory, check_read, check_write},
};

const SIZE: usize = 2 * RANGE_LEN as usize + 5000;

fn memory() -> impl Strategy<Value = Memory> {
    let bad = prop_oneof![0..8_usize, Just(usize::MAX >> 20)];
    prop_oneof![
        prop::collection::vec(prop_oneof![0..20_usize, 0..70_000_usize], 0..10).prop_map(Memory::List),
        (0..2000_usize, bad, any::<u64>()).prop_map(|(begin, bad, random)| Memory::Paged(begin, bad, random)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(16) })]

    #[test]
    fn mapped_files_have_what_lists_and_present_memory_said(
        steps in prop::collection::vec(
            (
                any::<bool>(),
                prop_oneof![0..SIZE, Just(RANGE_LEN as usize - 700), Just(SIZE - 3000)],
                prop_oneof![0..10_000_usize, 0..60_000_usize],
                memory(),
            ),
            1..30,
        ),
    ) {
        let (dir, window, fs) = share(2);
        let file = fs.open("file", &OpenOptions::new().read(true).write(true)).unwrap();
        let mut model: Vec<u8> = (0..SIZE).map(|at| (at % 241) as u8).collect();
        prop_assert_eq!(file.write_at(0, &model), Ok(SIZE));
        // What lies within the file is mapped, whatever the steps do.
        prop_assert_eq!(file.write_at(0, &model), Ok(SIZE));
        for (number, (is_write, at, len, memory)) in steps.iter().enumerate() {
            if *is_write {
                let bytes: Vec<u8> = (0..*len).map(|at| (at * 31 + number) as u8).collect();
                let count = check_write(memory, &bytes, |source| file.write_from_at(*at as u64, source));
                model.resize(model.len().max(*at + count), 0);
                model[*at..*at + count].copy_from_slice(&bytes[..count]);
            } else {
                check_read(memory, *len, &model[*at..], |sink| file.read_into_at(*at as u64, sink));
            }
        }
        prop_assert!(std::fs::read(dir.path().join("file")).unwrap() == model, "what the host has");
        prop_assert!(!window.mappings.lock().unwrap().is_empty());
    }
}
