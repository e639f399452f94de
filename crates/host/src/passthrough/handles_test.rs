use std::fs::File;

use super::*;

fn handles() -> Handles {
    Handles::new(Arc::new(Descriptors::new(1024)))
}

fn open(handles: &Handles) -> Handle {
    let slot = handles.reserve().unwrap();
    handles.add_file(slot, NodeId(1), File::open("/dev/null").unwrap().into()).unwrap()
}

fn spare_count(handles: &Handles) -> usize {
    handles.shards.iter().map(|shard| lock(shard).spare_files.len()).sum()
}

#[test]
fn memory_of_closed_files_is_kept_for_a_few_and_used_again() {
    let handles = handles();
    let opened: Vec<Handle> = (0..200).map(|_| open(&handles)).collect();
    opened.iter().for_each(|&fh| handles.remove(fh));
    assert_eq!(spare_count(&handles), SPARE_FILES_MAX * SHARD_COUNT as usize);
    let again = open(&handles);
    assert_eq!(spare_count(&handles), SPARE_FILES_MAX * SHARD_COUNT as usize - 1);
    assert!(handles.file(again).is_ok() && !opened.contains(&again));
    assert!(opened.iter().all(|&fh| handles.file(fh).is_err()));
}

#[test]
fn a_file_in_use_stays_open_and_its_memory_is_not_given_to_another() {
    let handles = handles();
    let fh = open(&handles);
    let used = handles.file(fh).unwrap();
    handles.remove(fh);
    assert_eq!(spare_count(&handles), 0);
    (0..SHARD_COUNT).for_each(|_| _ = open(&handles));
    assert!(rustix::io::fcntl_getfd(&used.fd).is_ok());
    assert_eq!(used.nodeid, NodeId(1));
}
