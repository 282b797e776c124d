//! Our types against the table that a program compiled against Score-P 8.4's own headers printed.

use scorep_abi::metric::*;
use scorep_abi::*;
use serde_json::Value;

fn table() -> Value {
    serde_json::from_str(include_str!("scorep-8.4-abi.json")).unwrap()
}

#[test]
fn structures_have_score_ps_layout() {
    let table = table();
    assert_eq!(table["SCOREP_SUBSTRATE_PLUGIN_VERSION"], PLUGIN_VERSION);
    assert_eq!(table["SCOREP_METRIC_PLUGIN_VERSION"], METRIC_PLUGIN_VERSION);
    for (name, bytes, ours) in
        [Callbacks::LAYOUT, SubstratePluginInfo::LAYOUT, MetricPluginInfo::LAYOUT, TimeValuePair::LAYOUT]
    {
        let expected = &table["structs"][name];
        assert_eq!(expected["size"], bytes, "{name}");
        let fields = expected["fields"].as_array().unwrap().iter();
        let fields = fields.map(|field| (field[0].as_str().unwrap(), field[1].as_u64().unwrap() as usize));
        assert_eq!(ours, fields.collect::<Vec<_>>(), "{name}");
    }
    assert_eq!(table["handles"]["SCOREP_Location_ptr"], size_of::<*const Location>());
    assert_eq!(table["handles"]["SCOREP_AnyHandle"], size_of::<AnyHandle>());
}

#[test]
fn enums_have_score_ps_values() {
    let table = table();
    let enums = [
        event::VALUES,
        location_type::VALUES,
        handle_type::VALUES,
        region_type::VALUES,
        paradigm::VALUES,
        collective::VALUES,
        mode::VALUES,
        metric_per::VALUES,
        metric_synchronicity::VALUES,
        metric_synchronization::VALUES,
        metric_mode::VALUES,
        metric_value_type::VALUES,
        metric_base::VALUES,
    ];
    for (kind, constants) in enums {
        for (name, ours) in constants {
            assert_eq!(table["enums"][kind]["values"][name], *ours, "{name}");
        }
    }
    let events = &table["enums"]["SCOREP_Substrates_EventType"]["values"];
    assert_eq!(events["SCOREP_SUBSTRATES_NUM_EVENTS"], NUM_EVENTS);
}
