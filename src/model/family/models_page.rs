//! docs/models.md says which classes open: its table is made of [`FAMILIES`] and [`WRAPPERS`], and compared with them.

use crate::families::FAMILIES;
use crate::wrappers::WRAPPERS;
use std::{env, fs};

const BEGIN: &str = "<!-- Written by scripts/models.sh from src/model/families. -->\n";
const END: &str = "<!-- End of what scripts/models.sh writes. -->";

fn table() -> String {
    let row = |classes: &[&str], models: &str| {
        let classes: Vec<String> = classes.iter().map(|class| format!("`{class}`")).collect();
        format!("| {} | {models} |\n", classes.join(", "))
    };
    let decoders = FAMILIES.iter().map(|family| row(family.classes, family.models));
    let wrappers = WRAPPERS.iter().map(|wrapper| row(&[wrapper.class], wrapper.models));
    ["| class in `config.json` | models |\n|---|---|\n".into()].into_iter().chain(decoders).chain(wrappers).collect()
}

#[test]
fn the_page_of_models_lists_the_classes_that_open() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/models.md");
    let page = fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the table has a begin");
    let (found, after) = rest.split_once(END).expect("the table has an end");
    if env::var_os("NVLLM_WRITE_MODELS").is_some() {
        fs::write(path, format!("{before}{BEGIN}{}{END}{after}", table())).unwrap();
    } else {
        assert_eq!(found, table(), "scripts/models.sh writes what is wanted");
    }
}

#[test]
fn a_class_stands_for_one_family() {
    let mut classes: Vec<&str> = super::classes().collect();
    let count = classes.len();
    classes.sort_unstable();
    classes.dedup();
    assert_eq!(classes.len(), count);
}
