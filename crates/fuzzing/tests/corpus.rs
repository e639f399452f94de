//! Replays the fuzzers' seeds and what they found.

use std::{fs, path::Path};

use transom_fuzzing::{announcement, decode, guest, migration, requests, seeds, seeds::Seed};

/// Bytes of all corpora together; they are part of every clone.
const CORPORA_BYTES_MAX: u64 = 1 << 20;

fn replay(target: &str, seeds: Vec<Seed>, run: fn(&[u8])) -> u64 {
    for seed in seeds {
        eprintln!("{target}: seed {}", seed.name);
        run(&seed.bytes);
    }
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut total = 0;
    for entry in fs::read_dir(&corpus).unwrap_or_else(|error| panic!("{}: {error}", corpus.display())) {
        let path = entry.unwrap().path();
        eprintln!("{}", path.display());
        let bytes = fs::read(&path).unwrap();
        total += bytes.len() as u64;
        run(&bytes);
    }
    assert!(total > 0, "{} is empty", corpus.display());
    total
}

#[test]
fn every_message_of_the_corpus_is_answered_as_it_should() {
    assert!(replay("decode", seeds::decode(), decode::run) < CORPORA_BYTES_MAX / 2);
}

#[test]
fn every_sequence_of_the_corpus_is_answered_as_it_should() {
    assert!(replay("requests", seeds::requests(), requests::run) < CORPORA_BYTES_MAX / 2);
}

#[test]
fn every_device_of_the_corpus_is_borne() {
    assert!(replay("guest_device", seeds::guest_device(), guest::device::run) < CORPORA_BYTES_MAX / 4);
}

#[test]
fn every_server_of_the_corpus_is_borne() {
    assert!(replay("guest_replies", seeds::guest_replies(), guest::replies::run) < CORPORA_BYTES_MAX / 4);
}

#[test]
fn every_state_of_the_corpus_is_read_or_refused() {
    assert!(replay("migration", seeds::migration(), migration::run) < CORPORA_BYTES_MAX / 8);
}

#[test]
fn every_announcement_of_the_corpus_is_read_or_refused() {
    assert!(replay("announcement", seeds::announcement(), announcement::run) < CORPORA_BYTES_MAX / 8);
}
