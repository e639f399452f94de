//! A guest that maps again and again and never removes a mapping.

use std::fs;

use crate::host::{Kind, RANGE, RANGES, Share, lookup};

/// Memory and descriptors of the daemon that may come and go: arenas, and files that are open for a mapping.
const MEMORY_SLACK_KIB: u64 = 2048;
const DESCRIPTOR_SLACK: u64 = 8;
/// Mappings before the first look, and three times as many before the second.
const COUNT: u64 = 600;

/// Memory of its own in KiB, and descriptors.
fn usage(share: &Share) -> (u64, u64) {
    let process = format!("/proc/{}", share.pid());
    let status = fs::read_to_string(format!("{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let memory = line.trim_end_matches("kB").trim().parse().unwrap();
    (memory, fs::read_dir(format!("{process}/fd")).unwrap().count() as u64)
}

#[test]
fn mappings_take_the_place_of_others_and_nothing_more() {
    for kind in Kind::ALL {
        let share = Share::process(kind, "");
        let (front_end, mut session) = share.session();
        // More files than the window has ranges, so that each mapping replaces one of another file.
        let files = RANGES + 3;
        let nodeids: Vec<u64> =
            (0..files).map(|n| lookup(&mut session, &share.file(&format!("file-{n}"), RANGE, n as u8 + 1))).collect();
        let mut map = |times: u64| {
            for n in 0..times {
                let nodeid = nodeids[(n % files) as usize];
                session.setupmapping(nodeid, 0, RANGE, n % RANGES * RANGE, n % 2 == 0).unwrap();
                if n % 5 == 0 {
                    session.removemapping(nodeid, &[(n % RANGES * RANGE, RANGE)]).unwrap();
                }
            }
        };
        map(COUNT);
        let before = usage(&share);
        map(3 * COUNT);
        let after = usage(&share);
        println!("{kind:?}: {COUNT} mappings {before:?}, {} mappings {after:?}", 4 * COUNT);
        assert!(after.0 <= before.0 + MEMORY_SLACK_KIB, "{kind:?}: {before:?}, then {after:?}");
        assert!(after.1 <= before.1 + DESCRIPTOR_SLACK, "{kind:?}: {before:?}, then {after:?}");
        share.agrees(&front_end);
    }
}
