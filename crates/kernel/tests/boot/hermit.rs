//! The unikernel Hermit with the guest library as its file system: `examples/hermit`.

use std::fs;

use super::{INPUT_LEN, build, by_name::Purpose, input, machine::Attachment, run};

/// Length of the file that is mapped: six ranges, of which the window has room for four. The last ends within a page.
const TABLE_LEN: usize = (10 << 20) + 1234;
/// Pages of a range, which is entered as a whole except at the end of the file.
const RANGE_PAGES: usize = 512;

/// Returns what is in `table` at first.
pub(super) fn table() -> Vec<u8> {
    (0..TABLE_LEN).map(|at| (at ^ (at >> 8) ^ ((at >> 12) * 5)) as u8).collect()
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().copied().map(u64::from).sum()
}

/// Not in the default run, because it takes three minutes of a processor to build Hermit the first time.
#[test]
#[ignore = "by name: cargo test -p transom-kernel --test boot -- --ignored hermit"]
fn hermit_reads_writes_and_maps_files_of_a_share() {
    let Some(kernel) = build("Hermit", "examples/hermit/build", &[]) else { return };
    let Some((dir, output)) = run(&kernel, Attachment::Riscv64OfOne, Purpose::Hermit) else { return };
    let share = dir.path().join("share");
    let console = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = [
        format!("ok: read {INPUT_LEN} of {INPUT_LEN} bytes of sum {}", sum(&input())),
        "ok: wrote them in reverse order, and found [\"input\", \"many\", \"output\", \"table\"]".to_owned(),
        format!("ok: loaded {TABLE_LEN} bytes of sum {}", sum(&table())),
        // Every page is stored to, then one of the first range, whose entries are recorded together.
        format!("ok: stored to {} pages", TABLE_LEN.div_ceil(4096)),
        format!("ok: stored to {RANGE_PAGES} pages again"),
        "all is well".to_owned(),
    ];
    for line in said {
        let is_said = console.lines().any(|found| found == line);
        assert!(is_said, "{line}: {console}{}", String::from_utf8_lossy(&output.stderr));
    }
    let turned: Vec<u8> = input().into_iter().rev().collect();
    assert!(fs::read(share.join("output")).unwrap() == turned, "the host does not have what was written");
    let inverted: Vec<u8> = table().into_iter().map(|byte| !byte).collect();
    assert!(fs::read(share.join("table")).unwrap() == inverted, "the host does not have what was stored");
}
