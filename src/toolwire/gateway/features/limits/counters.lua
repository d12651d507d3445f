-- The operations of the counters in Redis. Each script is the common part and its own; `counters_redis.py` puts the
-- constants in capitals before them.

-- script common
local leases, prefix = KEYS[1], PREFIX
local now = tonumber(ARGV[1])
if not now then
    local time = redis.call('TIME')
    now = tonumber(time[1]) + tonumber(time[2]) / 1000000
end
local function text(number) return string.format('%.0f', number) end
local function add(key, field, amount)
    -- Not to a window that is gone.
    if amount ~= 0 and redis.call('EXISTS', key) == 1 then redis.call('HINCRBY', key, field, text(amount)) end
end
local function hold(reservation, sign)
    for place = 2, #reservation, 2 do add(reservation[place], 'held', sign * tonumber(reservation[place + 1])) end
end
local function release_expired()
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, 1000)) do
        local key = prefix .. 'r:' .. id
        local reservation = redis.call('LRANGE', key, 0, -1)
        if reservation[1] == 'held' then
            hold(reservation, -1)
            redis.call('LSET', key, 0, 'released')
        end
        redis.call('ZREM', leases, id)
    end
end

-- script reserve
-- The day of the month is found as in core/rate_limits.py. A day 31 days after the first is in the next month.
local function day_of_month(days)
    local of_era = (days + 719468) % 146097
    local year = math.floor((of_era - math.floor(of_era / 1460) + math.floor(of_era / 36524)
        - math.floor(of_era / 146096)) / 365)
    local of_year = of_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
    return of_year - math.floor((153 * math.floor((5 * of_year + 2) / 153) + 2) / 5) + 1
end
local function find_window(unit)
    if unit == 'none' then return 0, NO_END end
    if unit == 'month' then
        local today = math.floor(now / 86400)
        local first = today - day_of_month(today) + 1
        local following = first + 31
        return first * 86400, (following - day_of_month(following) + 1) * 86400
    end
    local start = math.floor(now / UNIT_SECONDS[unit]) * UNIT_SECONDS[unit]
    return start, start + UNIT_SECONDS[unit]
end
release_expired()
local lease, id = tonumber(ARGV[2]), ARGV[3]
local key = prefix .. 'r:' .. id
local is_known = redis.call('EXISTS', key) == 1
local states, refused, reservation, forgotten = {}, {}, {'held'}, {}
for place = 4, #ARGV, 5 do
    local counter, unit = ARGV[place], ARGV[place + 1]
    local amount, limit = tonumber(ARGV[place + 2]), tonumber(ARGV[place + 3])
    local start, ends = find_window(unit)
    local window = prefix .. 'c:' .. counter .. ':' .. text(start)
    if ARGV[place + 4] == '1' and redis.call('EXISTS', window) == 0 then
        forgotten[#forgotten + 1] = {(place - 4) / 5, text(start), text(ends), window}
    end
    local found = redis.call('HMGET', window, 'used', 'held')
    local taken = tonumber(found[1] or 0) + tonumber(found[2] or 0)
    if is_known then taken = taken - amount end
    states[#states + 1] = text(taken)
    states[#states + 1] = string.format('%.6f', ends - now)
    if not is_known and limit >= 0 and taken + amount > limit then refused[#refused + 1] = (place - 4) / 5 end
    reservation[#reservation + 1] = window
    reservation[#reservation + 1] = text(amount)
end
if #forgotten > 0 and not is_known then return {states, refused, forgotten} end
if #refused == 0 and not is_known then
    for place = 4, #ARGV, 5 do
        local start, ends = find_window(ARGV[place + 1])
        local window = reservation[(place - 4) / 5 * 2 + 2]
        redis.call('HSET', window, 'counter', ARGV[place], 'unit', ARGV[place + 1], 'ends', text(ends))
        redis.call('HINCRBY', window, 'held', ARGV[place + 2])
        local kept = ARGV[place + 1] == 'none' and BARE_KEPT_SECONDS or math.ceil(ends - now) + KEPT_SECONDS
        redis.call('EXPIRE', window, kept)
    end
    redis.call('RPUSH', key, unpack(reservation))
    redis.call('EXPIRE', key, math.ceil(lease) + KEPT_SECONDS)
    redis.call('ZADD', leases, string.format('%.6f', now + lease), id)
end
return {states, refused, {}}

-- script fill
-- Of gateways that find at the same time that a window is not there, the first one fills it.
for place = 2, #ARGV, 5 do
    local window, ends = ARGV[place], tonumber(ARGV[place + 3])
    if redis.call('EXISTS', window) == 0 and ends > now then
        redis.call('HSET', window, 'counter', ARGV[place + 1], 'unit', ARGV[place + 2], 'ends', ARGV[place + 3],
            'used', ARGV[place + 4])
        redis.call('EXPIRE', window, math.ceil(ends - now) + KEPT_SECONDS)
    end
end
return 1

-- script settle
local place = 2
while place <= #ARGV do
    local id, count = ARGV[place], tonumber(ARGV[place + 1])
    local key = prefix .. 'r:' .. id
    local reservation = redis.call('LRANGE', key, 0, -1)
    if reservation[1] == 'held' then hold(reservation, -1) end
    if reservation[1] then
        for number = 1, count do
            local amount = tonumber(ARGV[place + 1 + number])
            add(reservation[number * 2], 'used', amount)
        end
        redis.call('DEL', key)
        redis.call('ZREM', leases, id)
    end
    place = place + 2 + count
end
return 1

-- script renew
release_expired()
local lease = tonumber(ARGV[2])
for place = 3, #ARGV do
    local id = ARGV[place]
    local key = prefix .. 'r:' .. id
    local reservation = redis.call('LRANGE', key, 0, -1)
    if reservation[1] then
        if reservation[1] == 'released' then
            hold(reservation, 1)
            redis.call('LSET', key, 0, 'held')
        end
        redis.call('EXPIRE', key, math.ceil(lease) + KEPT_SECONDS)
        redis.call('ZADD', leases, string.format('%.6f', now + lease), id)
    end
end
return 1

-- script read
release_expired()
local rows = {}
for _, window in ipairs(ARGV) do
    local found = redis.call('HMGET', window, 'counter', 'unit', 'ends', 'used', 'held')
    if window ~= ARGV[1] and found[1] and tonumber(found[3]) > now then
        rows[#rows + 1] = {found[1], found[2], found[4] or '0', found[5] or '0',
            string.format('%.6f', tonumber(found[3]) - now)}
    end
end
return rows
