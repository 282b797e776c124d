-- rocmProfileData's tables with the columns that its tools read, and ampere's additional columns and tables.
CREATE TABLE rocpd_metadata (id INTEGER PRIMARY KEY, tag TEXT NOT NULL, value TEXT NOT NULL);
CREATE TABLE rocpd_string (id INTEGER PRIMARY KEY, string TEXT NOT NULL);
-- Calls on the ranks' threads. calls is the number of calls that the row stands for, and null for a sampled stack, whose calls are
-- not counted. exclusive is the time without callees, in nanoseconds, and joules are exclusive, too. joules are null if the thread
-- draws from no device.
CREATE TABLE rocpd_api (
    id INTEGER PRIMARY KEY, pid INTEGER NOT NULL, tid INTEGER NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL,
    apiName_id INTEGER NOT NULL REFERENCES rocpd_string (id), args_id INTEGER NOT NULL REFERENCES rocpd_string (id),
    calls INTEGER DEFAULT 1, exclusive INTEGER NOT NULL DEFAULT 0, joules REAL, inclusive_joules REAL);
-- Kernels on their GPU streams. calls is null for the rest of a kernel that another one has interrupted.
CREATE TABLE rocpd_op (
    id INTEGER PRIMARY KEY, gpuId INTEGER NOT NULL, queueId INTEGER NOT NULL, sequenceId INTEGER NOT NULL,
    completionSignal TEXT NOT NULL DEFAULT '', start INTEGER NOT NULL, end INTEGER NOT NULL,
    description_id INTEGER NOT NULL REFERENCES rocpd_string (id), opType_id INTEGER NOT NULL REFERENCES rocpd_string (id),
    calls INTEGER DEFAULT 1, joules REAL);
-- These tables stay empty: this file does not state which call started which kernel, what was copied, or what is monitored.
CREATE TABLE rocpd_api_ops (
    id INTEGER PRIMARY KEY, api_id INTEGER NOT NULL REFERENCES rocpd_api (id), op_id INTEGER NOT NULL REFERENCES rocpd_op (id));
CREATE TABLE rocpd_copyapi (
    api_ptr_id INTEGER PRIMARY KEY REFERENCES rocpd_api (id), stream TEXT NOT NULL, size INTEGER NOT NULL, width INTEGER NOT NULL,
    height INTEGER NOT NULL, kind INTEGER NOT NULL, dst TEXT NOT NULL, src TEXT NOT NULL, dstDevice INTEGER NOT NULL,
    srcDevice INTEGER NOT NULL, sync BOOL NOT NULL, pinned BOOL NOT NULL);
CREATE TABLE rocpd_monitor (
    id INTEGER PRIMARY KEY, deviceType TEXT NOT NULL, deviceId INTEGER NOT NULL, monitorType TEXT NOT NULL, start INTEGER NOT NULL,
    end INTEGER NOT NULL, value TEXT NOT NULL);

-- The joules of each device. is_part states that another device's joules contain them. Static and dynamic joules, and the
-- baseline, are null if it is not known which locations were active. baseline_watts is also null if that power is not known.
CREATE TABLE ampere_device (
    node TEXT NOT NULL, device TEXT NOT NULL, gpuId INTEGER, energy TEXT NOT NULL, unit TEXT NOT NULL, is_part INTEGER NOT NULL,
    total_joules REAL NOT NULL, sampled_seconds REAL NOT NULL, static_joules REAL, dynamic_joules REAL, baseline_watts REAL,
    baseline_kind TEXT, PRIMARY KEY (node, device));
-- The regions of summary.json. Idle and lost joules are rows of the regions (idle) and (lost), so that the rows of a device in
-- one view add up to the device's joules.
CREATE TABLE ampere_region (
    node TEXT NOT NULL, device TEXT NOT NULL, view TEXT NOT NULL, region TEXT NOT NULL, calls INTEGER, exclusive_joules REAL NOT NULL,
    inclusive_joules REAL NOT NULL, resolved_joules REAL, exclusive_seconds REAL, static_joules REAL, dynamic_joules REAL,
    waited_joules REAL, caused_waiting_joules REAL);
-- The names of the threads that have a pid and a tid here.
CREATE TABLE ampere_thread (
    pid INTEGER NOT NULL, tid INTEGER NOT NULL, node TEXT NOT NULL, location_group TEXT NOT NULL, location TEXT NOT NULL);

CREATE VIEW ampere_joules AS
    SELECT view, region, sum(exclusive_joules) AS joules
    FROM ampere_region JOIN ampere_device USING (node, device)
    WHERE unit = 'J' AND NOT is_part GROUP BY view, region;
CREATE VIEW api AS
    SELECT rocpd_api.id, pid, tid, start, end, names.string AS apiName, words.string AS args, calls, joules,
        inclusive_joules
    FROM rocpd_api JOIN rocpd_string AS names ON names.id = apiName_id JOIN rocpd_string AS words ON words.id = args_id;
CREATE VIEW op AS
    SELECT rocpd_op.id, gpuId, queueId, sequenceId, start, end, names.string AS description, types.string AS opType, calls, joules
    FROM rocpd_op JOIN rocpd_string AS names ON names.id = description_id JOIN rocpd_string AS types ON types.id = opType_id;
CREATE VIEW kernel AS
    SELECT id, gpuId, queueId, sequenceId, start, end, end - start AS duration, description AS kernelName, calls, joules
    FROM op WHERE opType = 'KernelExecution';
-- Times are in microseconds here, as rocmProfileData has them.
CREATE VIEW top AS
    SELECT Name, TotalCalls, Nanoseconds / 1000 AS TotalDuration, Nanoseconds / TotalCalls / 1000 AS Ave,
        Nanoseconds * 100.0 / sum(Nanoseconds) OVER () AS Percentage, joules AS Joules
    FROM (SELECT description AS Name, sum(calls) AS TotalCalls, sum(end - start) AS Nanoseconds FROM op GROUP BY description)
    LEFT JOIN ampere_joules ON view = 'kernels' AND region = Name
    ORDER BY Nanoseconds DESC;
CREATE VIEW ktop AS SELECT * FROM top;
CREATE VIEW busy AS
    SELECT gpuId, GpuTime, WallTime, GpuTime * 1.0 / WallTime AS Busy,
        (SELECT sum(total_joules) FROM ampere_device WHERE ampere_device.gpuId = gpus.gpuId) AS Joules
    FROM (SELECT gpuId, sum(end - start) AS GpuTime FROM rocpd_op GROUP BY gpuId) AS gpus
    JOIN (SELECT max(end) - min(start) AS WallTime FROM rocpd_op);
CREATE VIEW functions AS
    SELECT Name, TotalCalls, Nanoseconds / 1000 AS TotalDuration, Nanoseconds / TotalCalls / 1000 AS Ave,
        Exclusive / 1000 AS ExclusiveDuration, Exclusive * 100.0 / sum(Exclusive) OVER () AS Percentage, joules AS Joules
    FROM (SELECT apiName AS Name, sum(api.calls) AS TotalCalls, sum(api.end - api.start) AS Nanoseconds, sum(exclusive) AS Exclusive
        FROM api JOIN rocpd_api USING (id) GROUP BY apiName)
    LEFT JOIN ampere_joules ON view = 'ranks' AND region = Name
    ORDER BY Exclusive DESC;
