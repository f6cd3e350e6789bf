#include "io/rights.h"

#define W ROLE_WORKER
#define P ROLE_PRODUCER
#define O ROLE_OPERATOR

static const struct right table[] = {
    /* Connections. */
    {P | O, "PING"},
    {W | P | O, "SELECT 0"},
    {W | P | O, "CLIENT SETNAME x"},
    {W, "CLIENT ID"},
    {W, "CLIENT UNBLOCK 1"},
    {W | P | O, "ROLE"}, /* where an address names several servers or sentinels */
    {W | O, "INFO"},
    {W | O, "TIME"},
    {O, "CONFIG GET maxmemory"},
    {O, "ACL WHOAMI"},
    {O, "ACL DRYRUN x PING"},
    {W | O, "SCRIPT LOAD x"},
    {P, "WAIT 0 1"},

    /* A script's keys must be its caller's to read and to write. */
    {W | O, "EVALSHA x 1 @requests*"},
    {W | O, "EVALSHA x 1 @dead"},
    {W, "EVALSHA x 1 @reply:x"},
    {W, "EVALSHA x 1 @stage:x"},
    {W, "EVALSHA x 1 @wake:x"},
    {W, "EVALSHA x 1 @results"},
    {W, "EVALSHA x 1 @results:x"},
    {W, "EVALSHA x 1 @later"},
    {W, "EVALSHA x 1 @later:data"},
    {W, "EVALSHA x 1 @trouble"},
    {W, "EVALSHA x 1 @alive:x"},
    {W, "EVALSHA x 1 @workers"},
    {W, "EVALSHA x 1 @meta"},
    {W, "EVALSHA x 1 @paused"},

    /* The streams of requests. */
    {W | P | O, "XADD @requests* * x x"},
    {W, "XGROUP CREATE @requests* sluice 0 MKSTREAM"},
    {W, "XGROUP DELCONSUMER @requests* sluice x"},
    {W, "XINFO CONSUMERS @requests* sluice"},
    {W | O, "XINFO GROUPS @requests*"},
    {W, "XREADGROUP GROUP sluice x COUNT 1 STREAMS @requests* >"},
    {W | O, "XPENDING @requests* sluice"},
    {W, "XCLAIM @requests* sluice x 0 1-0"},
    {W, "XRANGE @requests* - +"},
    {W, "XREVRANGE @requests* + -"},
    {W | O, "XLEN @requests*"},
    {W, "XDEL @requests* 1-0"},
    {W, "XACK @requests* sluice 1-0"},

    /* Replies, and who is told of them. */
    {W | P, "HGET @reply:x x"},
    {P, "HMGET @reply:x x"},
    {P | O, "HGETALL @reply:x"},
    {W | P, "EXISTS @reply:x"},
    {P, "PTTL @reply:x"},
    {W, "HSET @reply:x x x"},
    {W, "DEL @reply:x"},
    {W, "PEXPIRE @reply:x 1"},
    {P, "UNLINK @reply:x"},
    {W, "MULTI"},
    {W, "EXEC"},
    {W, "HSET @stage:x x x"},
    {W, "PEXPIRE @stage:x 1"},
    {W, "RENAME @stage:x @reply:x"},
    {W, "DEL @stage:x"},
    {W, "RPUSH @wake:x x"},
    {W, "PEXPIRE @wake:x 1"},
    {P, "BLPOP @wake:x 0"},
    {W, "XADD @results:x * x x"},
    {W, "PEXPIRE @results:x 1"},
    {P, "XREAD STREAMS @results:x 0"},
    {W, "ZSCORE @results x"},
    {W, "ZADD @results 1 x"},
    {W, "ZCARD @results"},
    {W, "ZREMRANGEBYSCORE @results 0 1"},

    /* Delays, retries, suspects, dead letters. */
    {W, "ZADD @later 1 x"},
    {W, "ZRANGEBYSCORE @later 0 1"},
    {W, "ZRANGE @later 0 0"},
    {W, "ZREM @later x"},
    {W | O, "ZCARD @later"},
    {W, "HGET @later:data x"},
    {W, "HSET @later:data x x"},
    {W, "HDEL @later:data x"},
    {W, "HLEN @later:data"},
    {W, "HRANDFIELD @later:data 1"},
    {W, "HGET @trouble x"},
    {W, "HSET @trouble x x"},
    {W, "HDEL @trouble x"},
    {W, "EXISTS @trouble"},
    {W, "XADD @dead * x x"},
    {W, "XTRIM @dead MAXLEN 1"},
    {W | O, "XLEN @dead"},
    {O, "XRANGE @dead - +"},
    {O, "XDEL @dead 1-0"},

    /* Workers, and what the queue knows of itself. */
    {W, "SET @alive:x x"},
    {W, "GET @alive:x"},
    {W, "DEL @alive:x"},
    {W, "PEXPIRE @alive:x 1"},
    {W | O, "EXISTS @alive:x"},
    {W | O, "HSET @workers x x"},
    {W, "HGET @workers x"},
    {W, "HVALS @workers"},
    {W, "HEXISTS @workers x"},
    {W | O, "HGETALL @workers"},
    {W, "HDEL @workers x"},
    {W | P | O, "HGET @meta x"},
    {P, "HGETALL @meta"},
    {W | P | O, "HMGET @meta x"},
    {W | O, "HSET @meta x x"},
    {W, "HSETNX @meta x x"},
    {W | O, "EXISTS @paused"},
    {O, "SET @paused x"},
    {O, "DEL @paused"},

    /* The doctor itself. */
    {O, "TYPE @requests*"},
    {O, "TYPE @reply:x"},
    {O, "TYPE @wake:x"},
    {O, "TYPE @results"},
    {O, "TYPE @results:x"},
    {O, "TYPE @later"},
    {O, "TYPE @later:data"},
    {O, "TYPE @trouble"},
    {O, "TYPE @dead"},
    {O, "TYPE @alive:x"},
    {O, "TYPE @workers"},
    {O, "TYPE @meta"},
    {O, "TYPE @paused"},
};

const struct right *rights_table(size_t *count)
{
    *count = sizeof table / sizeof table[0];
    return table;
}
