use proptest::prelude::*;

use super::*;

fn map(text: &str) -> XattrMap {
    text.parse().unwrap()
}

fn to_server(map: &XattrMap, name: &str) -> Result<String, Errno> {
    map.to_server(name.as_bytes()).map(|name| String::from_utf8(name.into_owned()).unwrap())
}

#[test]
fn everything_gets_a_prefix_and_the_hosts_own_names_are_hidden() {
    let long = map(":prefix:all::user.virtiofs.::bad:all:::");
    assert_eq!(long, map("  :map::user.virtiofs.:\n"));
    assert_eq!(to_server(&long, "security.selinux").unwrap(), "user.virtiofs.security.selinux");
    assert_eq!(to_server(&long, "user.virtiofs.x").unwrap(), "user.virtiofs.user.virtiofs.x");
    let list = b"user.virtiofs.user.a\0security.selinux\0user.b\0user.virtiofs.trusted.c\0";
    assert_eq!(long.filter_list(list), b"user.a\0trusted.c\0");
    assert_eq!(long.filter_list(b"security.selinux\0"), b"");
    assert_eq!(long.filter_list(b"user.virtiofs.\0"), b"", "the prefix alone would be a name of no bytes");
}

#[test]
fn one_kind_of_name_gets_a_prefix_and_the_rest_passes() {
    let long = map("/prefix/all/trusted./user.virtiofs./
         /bad/server//trusted./
         /bad/client/user.virtiofs.//
         /ok/all///");
    let short = map("/map/trusted./user.virtiofs./");
    for map in [&long, &short] {
        assert_eq!(to_server(map, "trusted.a").unwrap(), "user.virtiofs.trusted.a");
        assert_eq!(to_server(map, "user.virtiofs.trusted.a"), Err(Errno::PERM));
        assert_eq!(to_server(map, "user.a").unwrap(), "user.a");
        assert_eq!(map.filter_list(b"trusted.h\0user.virtiofs.trusted.a\0user.b\0"), b"trusted.a\0user.b\0");
    }
}

#[test]
fn scopes_separators_and_unsupported_names_are_told_apart() {
    let map = map(":unsupported:client:system.posix_acl_:: |bad|server||security.| :ok:all:::");
    assert_eq!(to_server(&map, "system.posix_acl_access"), Err(Errno::OPNOTSUPP));
    assert_eq!(to_server(&map, "security.a").unwrap(), "security.a");
    assert_eq!(map.filter_list(b"security.a\0system.posix_acl_access\0"), b"system.posix_acl_access\0");
}

#[test]
fn a_name_without_a_rule_is_denied_and_hidden() {
    let map = map(":ok:all:user.:user.:");
    assert_eq!(to_server(&map, "trusted.a"), Err(Errno::PERM));
    assert_eq!(map.to_client(b"trusted.a"), None);
    assert_eq!(map.to_client(b"user.a"), Some(&b"user.a"[..]));
}

#[test]
fn a_name_that_grows_past_255_bytes_is_erange() {
    let map = map(":map::user.virtiofs.:");
    let prefix = "user.virtiofs.".len();
    assert_eq!(to_server(&map, &"n".repeat(255 - prefix)).unwrap().len(), 255);
    assert_eq!(to_server(&map, &"n".repeat(256 - prefix)), Err(Errno::RANGE));
}

#[test]
fn bytes_that_are_no_utf8_pass() {
    let map = XattrMap::parse(b":map::user.\xff.:").unwrap();
    assert_eq!(map.to_server(b"a\xfe").unwrap().as_ref(), b"user.\xff.a\xfe");
    assert_eq!(map.filter_list(b"user.\xff.a\xfe\0"), b"a\xfe\0");
}

#[test]
fn texts_that_are_no_rules_say_why() {
    let error = |text: &str| text.parse::<XattrMap>().unwrap_err().to_string();
    let head = "of the map of extended attributes";
    assert_eq!(error(" \n"), format!("rule 1 {head} is missing: at least one is needed"));
    assert_eq!(
        error(":ok:all:::\n:oak:all:::"),
        format!("rule 2 {head} has type 'oak'; known are prefix, ok, bad, unsupported and map")
    );
    assert_eq!(error(":ok:both:::"), format!("rule 1 {head} has scope 'both'; known are client, server and all"));
    assert_eq!(error(":prefix:all:trusted.:user."), format!("rule 1 {head} has no ':' after 'user.'"));
    assert_eq!(error("/ok/all:::"), format!("rule 1 {head} has no '/' after 'all:::'"));
    assert!(error(":map:a:b::map:c:d:").starts_with(&format!("rule 2 {head} follows a map rule")));
    assert!(error("€ok€all€€€").contains("not ASCII"));
    assert!(error(":ok:all:a\0b::").contains("NUL"));
}

/// Returns short names from few letters, so that prefixes overlap.
fn name() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop::sample::select(vec![b'a', b'b', b'.']), 0..5)
}

fn rule() -> impl Strategy<Value = Rule> {
    let action = prop::sample::select(vec![Action::Prefix, Action::Ok, Action::Bad, Action::Unsupported]);
    let scope = prop::sample::select(vec![Scope::Client, Scope::Server, Scope::All]);
    (action, scope, name(), name()).prop_map(|(action, scope, key, prepend)| Rule { action, scope, key, prepend })
}

proptest! {
    /// With `map`, the guest sees everything that it can reach, under the name that it used, and two names remain
    /// distinct.
    #[test]
    fn a_map_rule_goes_there_and_back(key in name(), prepend in name(), one in name(), two in name()) {
        prop_assume!(!prepend.is_empty() && !one.is_empty() && !two.is_empty());
        // A prefix that begins as the key does maps into the names that it hides.
        prop_assume!(key.is_empty() || !(prepend.starts_with(&key) || key.starts_with(&prepend)));
        let map = XattrMap { rules: parse_map(&key, &prepend) };
        let reached = [&one, &two].map(|name| map.to_server(name).ok());
        for (name, reached) in [&one, &two].into_iter().zip(&reached) {
            if let Some(reached) = reached {
                prop_assert_eq!(map.to_client(reached), Some(name.as_slice()));
            }
        }
        if one != two && reached[0].is_some() {
            prop_assert_ne!(&reached[0], &reached[1]);
        }
    }

    /// The oracle walks the rules one by one.
    #[test]
    fn the_first_rule_that_matches_decides(rules in proptest::collection::vec(rule(), 0..6), name in name()) {
        let (mut client, mut server) = (None, None);
        for rule in rules.iter().rev() {
            if rule.scope != Scope::Server && name.strip_prefix(&rule.key[..]).is_some() {
                client = Some(rule);
            }
            if rule.scope != Scope::Client && name.strip_prefix(&rule.prepend[..]).is_some() {
                server = Some(rule);
            }
        }
        let map = XattrMap { rules: rules.clone() };
        let expected = match client.map(|rule| rule.action) {
            Some(Action::Ok) => Ok(name.clone()),
            Some(Action::Prefix) => Ok([client.unwrap().prepend.clone(), name.clone()].concat()),
            Some(Action::Unsupported) => Err(Errno::OPNOTSUPP),
            Some(Action::Bad) | None => Err(Errno::PERM),
        };
        prop_assert_eq!(map.to_server(&name).map(Cow::into_owned), expected);
        let expected = match server.map(|rule| rule.action) {
            Some(Action::Ok) => Some(&name[..]),
            Some(Action::Prefix) => name.strip_prefix(&server.unwrap().prepend[..]).filter(|name| !name.is_empty()),
            _ => None,
        };
        prop_assert_eq!(map.to_client(&name), expected);
    }

    #[test]
    fn no_text_panics(text in proptest::collection::vec(any::<u8>(), 0..60)) {
        let _ = XattrMap::parse(&text);
    }

    #[test]
    fn no_text_of_words_panics(text in "[:/ ](prefix|ok|bad|map|all|client|server|[:/ ]|a)*") {
        let _ = text.parse::<XattrMap>();
    }
}

fn parse_map(key: &[u8], prepend: &[u8]) -> Vec<Rule> {
    let text = [b":map:", key, b":", prepend, b":"].concat();
    XattrMap::parse(&text).unwrap().rules
}
