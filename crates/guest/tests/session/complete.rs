//! Every operation of the protocol is sent by the library, or is listed here with the reason why not.

use std::{fs, path::Path};

use transom_wire::Opcode;

/// Operations that the library does not send, and why.
const UNSENT: &[(Opcode, &str)] = &[
    (Opcode::Bmap, "maps blocks of a block device, which a share has none of"),
    (Opcode::NotifyReply, "answers a request for data of the guest's cache, which the library does not serve"),
];

/// An operation counts as sent if a file of `ops` or `session` builds the head of a request for it, or gives its type
/// to a function that does.
#[test]
fn every_operation_is_sent_or_has_a_reason_not_to_be() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = ["ops", "session"].map(|folder| fs::read_dir(source.join(folder)).expect("the sources are here"));
    let texts: Vec<String> =
        files.into_iter().flatten().map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    for &opcode in Opcode::ALL {
        let name = format!("{opcode:?}");
        // As the first type argument, or with its module.
        let patterns = [
            format!("<{name}>"),
            format!("<{name}, "),
            format!("<operation::{name}>"),
            format!("<operation::{name}, "),
        ];
        let is_sent = texts.iter().any(|text| patterns.iter().any(|pattern| text.contains(pattern)));
        let is_excepted = UNSENT.iter().any(|(unsent, _)| *unsent == opcode);
        assert!(is_sent != is_excepted, "{name}: sent {is_sent}, listed as not sent {is_excepted}");
    }
}
