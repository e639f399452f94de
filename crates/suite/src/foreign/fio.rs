//! fio with checksums in each block, which it reads back and compares.

use std::path::Path;

use super::{Test, root};

/// Names of jobs and what distinguishes them.
const JOBS: [(&str, &[&str]); 6] = [
    ("psync", &["--ioengine=psync", "--bs=4k"]),
    ("unaligned", &["--ioengine=psync", "--bsrange=512-65536", "--bs_unaligned=1"]),
    ("mmap", &["--ioengine=mmap", "--bs=4k"]),
    ("direct", &["--ioengine=libaio", "--iodepth=8", "--direct=1", "--bs=4k"]),
    ("large", &["--ioengine=psync", "--bs=1m"]),
    ("synchronous", &["--ioengine=psync", "--bs=16k", "--fsync=8", "--sync=dsync"]),
];

pub(super) fn run(root: &root::Root, share: &Path) -> anyhow::Result<Vec<Test>> {
    JOBS.iter().map(|(name, options)| one(root, share, name, options)).collect()
}

fn one(root: &root::Root, share: &Path, name: &str, options: &[&str]) -> anyhow::Result<Test> {
    let job = format!("--name={name}");
    let common = [
        "fio",
        "--directory=/share",
        "--size=8m",
        "--numjobs=2",
        "--rw=randwrite",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--do_verify=1",
        "--verify_backlog=128",
        "--unlink=1",
        "--output-format=terse",
    ];
    let words: Vec<&str> = common.into_iter().chain([job.as_str()]).chain(options.iter().copied()).collect();
    Ok(Test::of(name, &root.run(share, &words)?))
}
