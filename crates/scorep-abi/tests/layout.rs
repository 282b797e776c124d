//! Our types against the table that a program compiled against Score-P 8.4's own headers printed.

use scorep_abi::metric::{
    METRIC_PLUGIN_VERSION, MetricPluginInfo, TimeValuePair, metric_base, metric_mode, metric_per,
    metric_synchronicity, metric_synchronization, metric_value_type,
};
use scorep_abi::{
    Callbacks, Location, NUM_EVENTS, PLUGIN_VERSION, SubstratePluginInfo, event, handle_type, paradigm,
    region_type,
};
use serde_json::Value;
use std::mem::{offset_of, size_of};

fn table() -> Value {
    serde_json::from_str(include_str!("scorep-8.4-abi.json")).unwrap()
}

/// Name, offset and size of every field that the table has, and of no other.
fn check(table: &Value, name: &str, size: usize, ours: &[(&str, usize)]) {
    let expected = &table["structs"][name];
    assert_eq!(expected["size"], size, "{name}");
    let fields: Vec<(&str, u64)> = expected["fields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|field| (field[0].as_str().unwrap(), field[1].as_u64().unwrap()))
        .collect();
    let ours: Vec<(&str, u64)> = ours.iter().map(|(name, offset)| (*name, *offset as u64)).collect();
    assert_eq!(ours, fields, "{name}");
}

#[test]
fn structures_lie_as_score_ps_do() {
    let table = table();
    assert_eq!(table["SCOREP_SUBSTRATE_PLUGIN_VERSION"], PLUGIN_VERSION);
    check(
        &table,
        "SCOREP_SubstratePluginCallbacks",
        size_of::<Callbacks>(),
        &[
            ("SCOREP_GetExperimentDirName", offset_of!(Callbacks, get_experiment_dir_name)),
            ("SCOREP_Ipc_GetSize", offset_of!(Callbacks, ipc_get_size)),
            ("SCOREP_Ipc_GetRank", offset_of!(Callbacks, ipc_get_rank)),
            ("SCOREP_Ipc_Send", offset_of!(Callbacks, ipc_send)),
            ("SCOREP_Ipc_Recv", offset_of!(Callbacks, ipc_recv)),
            ("SCOREP_Ipc_Barrier", offset_of!(Callbacks, ipc_barrier)),
            ("SCOREP_Ipc_Bcast", offset_of!(Callbacks, ipc_bcast)),
            ("SCOREP_Ipc_Gather", offset_of!(Callbacks, ipc_gather)),
            ("SCOREP_Ipc_Gatherv", offset_of!(Callbacks, ipc_gatherv)),
            ("SCOREP_Ipc_Allgather", offset_of!(Callbacks, ipc_allgather)),
            ("SCOREP_Ipc_Reduce", offset_of!(Callbacks, ipc_reduce)),
            ("SCOREP_Ipc_Allreduce", offset_of!(Callbacks, ipc_allreduce)),
            ("SCOREP_Ipc_Scatter", offset_of!(Callbacks, ipc_scatter)),
            ("SCOREP_Ipc_Scatterv", offset_of!(Callbacks, ipc_scatterv)),
            ("SCOREP_Location_GetType", offset_of!(Callbacks, location_get_type)),
            ("SCOREP_Location_GetName", offset_of!(Callbacks, location_get_name)),
            ("SCOREP_Location_GetId", offset_of!(Callbacks, location_get_id)),
            ("SCOREP_Location_GetGlobalId", offset_of!(Callbacks, location_get_global_id)),
            ("SCOREP_Location_SetData", offset_of!(Callbacks, location_set_data)),
            ("SCOREP_Location_GetData", offset_of!(Callbacks, location_get_data)),
            (
                "SCOREP_CallingContextHandle_GetRegion",
                offset_of!(Callbacks, calling_context_handle_get_region),
            ),
            (
                "SCOREP_CallingContextHandle_GetParent",
                offset_of!(Callbacks, calling_context_handle_get_parent),
            ),
            ("SCOREP_MetricHandle_GetValueType", offset_of!(Callbacks, metric_handle_get_value_type)),
            ("SCOREP_MetricHandle_GetName", offset_of!(Callbacks, metric_handle_get_name)),
            ("SCOREP_MetricHandle_GetProfilingType", offset_of!(Callbacks, metric_handle_get_profiling_type)),
            ("SCOREP_MetricHandle_GetMode", offset_of!(Callbacks, metric_handle_get_mode)),
            ("SCOREP_MetricHandle_GetSourceType", offset_of!(Callbacks, metric_handle_get_source_type)),
            ("SCOREP_ParadigmHandle_GetClass", offset_of!(Callbacks, paradigm_handle_get_class)),
            ("SCOREP_ParadigmHandle_GetName", offset_of!(Callbacks, paradigm_handle_get_name)),
            ("SCOREP_ParadigmHandle_GetType", offset_of!(Callbacks, paradigm_handle_get_type)),
            ("SCOREP_ParameterHandle_GetName", offset_of!(Callbacks, parameter_handle_get_name)),
            ("SCOREP_ParameterHandle_GetType", offset_of!(Callbacks, parameter_handle_get_type)),
            ("SCOREP_RegionHandle_GetId", offset_of!(Callbacks, region_handle_get_id)),
            ("SCOREP_RegionHandle_GetName", offset_of!(Callbacks, region_handle_get_name)),
            ("SCOREP_RegionHandle_GetCanonicalName", offset_of!(Callbacks, region_handle_get_canonical_name)),
            ("SCOREP_RegionHandle_GetFileName", offset_of!(Callbacks, region_handle_get_file_name)),
            ("SCOREP_RegionHandle_GetBeginLine", offset_of!(Callbacks, region_handle_get_begin_line)),
            ("SCOREP_RegionHandle_GetEndLine", offset_of!(Callbacks, region_handle_get_end_line)),
            ("SCOREP_RegionHandle_GetType", offset_of!(Callbacks, region_handle_get_type)),
            ("SCOREP_RegionHandle_GetParadigmType", offset_of!(Callbacks, region_handle_get_paradigm_type)),
            (
                "SCOREP_SamplingSetHandle_GetNumberOfMetrics",
                offset_of!(Callbacks, sampling_set_handle_get_number_of_metrics),
            ),
            (
                "SCOREP_SamplingSetHandle_GetMetricHandles",
                offset_of!(Callbacks, sampling_set_handle_get_metric_handles),
            ),
            (
                "SCOREP_SamplingSetHandle_GetMetricOccurrence",
                offset_of!(Callbacks, sampling_set_handle_get_metric_occurrence),
            ),
            ("SCOREP_SamplingSetHandle_IsScoped", offset_of!(Callbacks, sampling_set_handle_is_scoped)),
            ("SCOREP_SamplingSetHandle_GetScope", offset_of!(Callbacks, sampling_set_handle_get_scope)),
            (
                "SCOREP_SamplingSetHandle_GetSamplingSetClass",
                offset_of!(Callbacks, sampling_set_handle_get_sampling_set_class),
            ),
            ("SCOREP_SourceFileHandle_GetName", offset_of!(Callbacks, source_file_handle_get_name)),
            ("SCOREP_StringHandle_Get", offset_of!(Callbacks, string_handle_get)),
            (
                "SCOREP_Metric_WriteStrictlySynchronousMetrics",
                offset_of!(Callbacks, metric_write_strictly_synchronous_metrics),
            ),
            (
                "SCOREP_Metric_WriteSynchronousMetrics",
                offset_of!(Callbacks, metric_write_synchronous_metrics),
            ),
            (
                "SCOREP_Metric_WriteAsynchronousMetrics",
                offset_of!(Callbacks, metric_write_asynchronous_metrics),
            ),
            ("SCOREP_ConfigManifestSectionHeader", offset_of!(Callbacks, config_manifest_section_header)),
            ("SCOREP_ConfigManifestSectionEntry", offset_of!(Callbacks, config_manifest_section_entry)),
        ],
    );
    check(
        &table,
        "SCOREP_SubstratePluginInfo",
        size_of::<SubstratePluginInfo>(),
        &[
            ("plugin_version", offset_of!(SubstratePluginInfo, plugin_version)),
            ("init", offset_of!(SubstratePluginInfo, init)),
            ("assign_id", offset_of!(SubstratePluginInfo, assign_id)),
            ("init_mpp", offset_of!(SubstratePluginInfo, init_mpp)),
            ("finalize", offset_of!(SubstratePluginInfo, finalize)),
            ("create_location", offset_of!(SubstratePluginInfo, create_location)),
            ("activate_cpu_location", offset_of!(SubstratePluginInfo, activate_cpu_location)),
            ("deactivate_cpu_location", offset_of!(SubstratePluginInfo, deactivate_cpu_location)),
            ("delete_location", offset_of!(SubstratePluginInfo, delete_location)),
            ("pre_unify", offset_of!(SubstratePluginInfo, pre_unify)),
            ("write_data", offset_of!(SubstratePluginInfo, write_data)),
            ("core_task_create", offset_of!(SubstratePluginInfo, core_task_create)),
            ("core_task_complete", offset_of!(SubstratePluginInfo, core_task_complete)),
            ("new_definition_handle", offset_of!(SubstratePluginInfo, new_definition_handle)),
            ("get_event_functions", offset_of!(SubstratePluginInfo, get_event_functions)),
            ("set_callbacks", offset_of!(SubstratePluginInfo, set_callbacks)),
            ("get_requirement", offset_of!(SubstratePluginInfo, get_requirement)),
            ("dump_manifest", offset_of!(SubstratePluginInfo, dump_manifest)),
            ("undeclared", offset_of!(SubstratePluginInfo, undeclared)),
        ],
    );
    assert_eq!(table["SCOREP_METRIC_PLUGIN_VERSION"], METRIC_PLUGIN_VERSION);
    check(
        &table,
        "SCOREP_Metric_Plugin_Info",
        size_of::<MetricPluginInfo>(),
        &[
            ("plugin_version", offset_of!(MetricPluginInfo, plugin_version)),
            ("run_per", offset_of!(MetricPluginInfo, run_per)),
            ("sync", offset_of!(MetricPluginInfo, sync)),
            ("delta_t", offset_of!(MetricPluginInfo, delta_t)),
            ("initialize", offset_of!(MetricPluginInfo, initialize)),
            ("finalize", offset_of!(MetricPluginInfo, finalize)),
            ("get_event_info", offset_of!(MetricPluginInfo, get_event_info)),
            ("add_counter", offset_of!(MetricPluginInfo, add_counter)),
            ("get_current_value", offset_of!(MetricPluginInfo, get_current_value)),
            ("get_optional_value", offset_of!(MetricPluginInfo, get_optional_value)),
            ("set_clock_function", offset_of!(MetricPluginInfo, set_clock_function)),
            ("get_all_values", offset_of!(MetricPluginInfo, get_all_values)),
            ("synchronize", offset_of!(MetricPluginInfo, synchronize)),
            ("reserved", offset_of!(MetricPluginInfo, reserved)),
        ],
    );
    check(
        &table,
        "SCOREP_MetricTimeValuePair",
        size_of::<TimeValuePair>(),
        &[("timestamp", offset_of!(TimeValuePair, timestamp)), ("value", offset_of!(TimeValuePair, value))],
    );
    assert_eq!(table["handles"]["SCOREP_Location_ptr"], size_of::<*const Location>());
    assert_eq!(table["handles"]["SCOREP_AnyHandle"], size_of::<scorep_abi::AnyHandle>());
}

#[test]
fn enums_have_score_ps_values() {
    let table = table();
    let value = |kind: &str, name: &str| table["enums"][kind]["values"][name].as_i64();
    assert_eq!(value("SCOREP_Substrates_EventType", "SCOREP_SUBSTRATES_NUM_EVENTS"), Some(NUM_EVENTS as i64));
    for (name, ours) in [
        ("SCOREP_EVENT_ENTER_REGION", event::ENTER_REGION),
        ("SCOREP_EVENT_EXIT_REGION", event::EXIT_REGION),
        ("SCOREP_EVENT_CALLING_CONTEXT_ENTER", event::CALLING_CONTEXT_ENTER),
        ("SCOREP_EVENT_CALLING_CONTEXT_EXIT", event::CALLING_CONTEXT_EXIT),
        ("SCOREP_EVENT_THREAD_FORK_JOIN_TASK_BEGIN", event::THREAD_FORK_JOIN_TASK_BEGIN),
        ("SCOREP_EVENT_THREAD_FORK_JOIN_TASK_END", event::THREAD_FORK_JOIN_TASK_END),
        ("SCOREP_EVENT_PROGRAM_BEGIN", event::PROGRAM_BEGIN),
        ("SCOREP_EVENT_PROGRAM_END", event::PROGRAM_END),
    ] {
        assert_eq!(value("SCOREP_Substrates_EventType", name), Some(ours as i64), "{name}");
    }
    for (kind, name, ours) in [
        ("SCOREP_HandleType", "SCOREP_HANDLE_TYPE_REGION", handle_type::REGION),
        ("SCOREP_RegionType", "SCOREP_REGION_KERNEL", region_type::KERNEL),
        ("SCOREP_RegionType", "SCOREP_REGION_POINT2POINT", region_type::POINT2POINT),
        ("SCOREP_ParadigmType", "SCOREP_PARADIGM_MPI", paradigm::MPI),
        ("SCOREP_ParadigmType", "SCOREP_PARADIGM_HIP", paradigm::HIP),
        ("SCOREP_LocationType", "SCOREP_LOCATION_TYPE_GPU", scorep_abi::location_type::GPU),
        ("SCOREP_MetricPer", "SCOREP_METRIC_PER_HOST", metric_per::HOST),
        ("SCOREP_MetricSynchronicity", "SCOREP_METRIC_ASYNC", metric_synchronicity::ASYNC),
        ("SCOREP_MetricMode", "SCOREP_METRIC_MODE_ACCUMULATED_START", metric_mode::ACCUMULATED_START),
        ("SCOREP_MetricMode", "SCOREP_METRIC_MODE_RELATIVE_NEXT", metric_mode::RELATIVE_NEXT),
        ("SCOREP_MetricValueType", "SCOREP_METRIC_VALUE_UINT64", metric_value_type::UINT64),
        ("SCOREP_MetricBase", "SCOREP_METRIC_BASE_DECIMAL", metric_base::DECIMAL),
        (
            "SCOREP_MetricSynchronizationMode",
            "SCOREP_METRIC_SYNCHRONIZATION_MODE_BEGIN_MPP",
            metric_synchronization::BEGIN_MPP,
        ),
        (
            "SCOREP_MetricSynchronizationMode",
            "SCOREP_METRIC_SYNCHRONIZATION_MODE_END",
            metric_synchronization::END,
        ),
    ] {
        assert_eq!(value(kind, name), Some(i64::from(ours)), "{name}");
    }
}
